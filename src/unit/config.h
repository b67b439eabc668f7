/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-power's configuration: one file of sections and keys, which man/tide-power.conf.5.scd
 * describes. One mistake, with its line, and the program does not start. Read once at the start;
 * used by all of src/unit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "edge/topic.h"

#define CONFIG_BYTES_MAX    (256 * 1024)
#define CONFIG_METERS_MAX   256
#define CONFIG_CHILDREN_MAX 256
#define CONFIG_TEXT_MAX     128
#define CONFIG_PATH_MAX     256

#define CONFIG_SWITCHES_MAX 32
#define CONFIG_SENSORS_MAX  32
#define CONFIG_NAME_MAX     48 /* of a meter, switch or sensor */

struct device_ops;
struct relay_ops;
struct sensor_ops;

/* Where a device of Modbus is: behind HOST:PORT, or on a serial line. */
struct modbus_address {
    char host[CONFIG_TEXT_MAX]; /* empty: a line */
    uint16_t port;
    char tty[CONFIG_TEXT_MAX]; /* "/dev/ttyUSB0" */
    uint32_t baud;
    char parity; /* 'N', 'E', 'O' */
    uint8_t unit;
};

enum modbus_type {
    MODBUS_FLOAT,
    MODBUS_FLOAT_SWAPPED, /* the low register first */
    MODBUS_INT16,
    MODBUS_UINT16,
    MODBUS_INT32,
    MODBUS_UINT32,
    MODBUS_INT32_SWAPPED,
    MODBUS_UINT32_SWAPPED,
    MODBUS_UINT64,
    MODBUS_TYPE_MAX
};
#define MODBUS_NO_REGISTER UINT32_MAX

/* Which registers of a meter tell what. */
struct modbus_map {
    uint32_t power, energy; /* first register, or MODBUS_NO_REGISTER */
    uint32_t power_type, energy_type;
    bool holding; /* they are holding registers, not input registers */
};

/* A meter, as its section says. */
struct meter_config {
    unsigned line; /* of the section */
    char name[CONFIG_NAME_MAX];
    const struct device_ops *ops;
    char topic[CONFIG_TEXT_MAX];                                    /* MQTT */
    char power_path[CONFIG_TEXT_MAX], energy_path[CONFIG_TEXT_MAX]; /* kind=json */
    struct modbus_address bus;                                      /* kind=modbus */
    struct modbus_map map;
    uint64_t power_scale, energy_scale; /* uW and uJ of 1 in what the meter tells */
    uint32_t error_permille;            /* what it may be wrong by */
    uint64_t most_uw;                   /* more is a lie */
    uint32_t period_s;                  /* between polls, or the longest silence that is no gap */
    char command[CONFIG_PATH_MAX];      /* kind=command: program and arguments */
    char sensor[CONFIG_TEXT_MAX];       /* kind=ipmi; empty: DCMI's power reading */
    char cipher[4];                     /* kind=ipmi: suite; empty: it is agreed */
    char url[CONFIG_TEXT_MAX];          /* kind=redfish */
    char user[CONFIG_NAME_MAX];         /* of a management controller */
    char password_file[CONFIG_PATH_MAX], ca[CONFIG_PATH_MAX]; /* empty: none */
    bool covers_area;            /* it measures all that the area draws */
    bool covers_other;           /* … something else: the rest of a cap is divided */
    bool covers_machine;         /* … all that a machine draws, which is told of it: */
    char machine[EDGE_NAME_MAX]; /* a child; empty: the machine of [tided] */
};

/* A relay. Only what has a section is ever switched. */
struct switch_config {
    unsigned line;
    char name[CONFIG_NAME_MAX];
    const struct relay_ops *ops;
    char topic[CONFIG_TEXT_MAX];
    int32_t channel; /* of a device with several; -1: it has one */
    struct modbus_address bus;
    uint32_t coil;
    bool always_on; /* nothing here ever switches it off */
    bool command;   /* people may switch it through the hub */
    bool rules;     /* rules may switch it off */
    bool restore;   /* what a rule switched off comes back when no rule says off */
    uint32_t min_on_s, min_off_s, most_per_hour;
};

/* A sensor that tells whether somebody is in the room. */
struct presence_config {
    unsigned line;
    char name[CONFIG_NAME_MAX];
    const struct sensor_ops *ops;
    char topic[CONFIG_TEXT_MAX], path[CONFIG_TEXT_MAX];
    int32_t channel;
    struct modbus_address bus;
    uint32_t input;
};

struct broker_config {
    bool named;
    char host[CONFIG_TEXT_MAX];
    uint16_t port;
    char ca[CONFIG_PATH_MAX], cert[CONFIG_PATH_MAX], key[CONFIG_PATH_MAX]; /* empty: none */
};

/* A machine or an area below this one. */
struct child_config {
    unsigned line;
    char name[EDGE_NAME_MAX];
    uint64_t floor_uw, most_uw; /* most 0: no bound */
};

#define KUBERNETES_NODE_MAX 254
#define KUBERNETES_NODE_ENV "NODE_NAME" /* of the downward API */

/* The node of a cluster that this machine is; empty texts: the pod's environment says it. */
struct kubernetes_config {
    bool named;
    char node[KUBERNETES_NODE_MAX];
    char server[CONFIG_TEXT_MAX];
    char credentials[CONFIG_PATH_MAX]; /* folder of the service account's token and ca.crt */
    uint32_t valid_s;                  /* for so long the annotations hold */
};

struct unit_config {
    char name[EDGE_NAME_MAX];
    uint64_t cap_uw; /* of all children together; 0: none */
    uint32_t kind;   /* enum cap_kind */
    unsigned children;
    struct child_config child[CONFIG_CHILDREN_MAX];
    char state_dir[CONFIG_PATH_MAX];
    char tided_socket[CONFIG_PATH_MAX]; /* empty: no machine is linked */
    bool tells_users;                   /* … whose energy by user goes up: personal data */
    struct broker_config local, uplink;
    char seal[CONFIG_PATH_MAX]; /* the hub's public key; empty: no policy, no commands */
    bool lease;                 /* ask the parent for a lease */
    bool metrics;
    uint16_t metrics_port; /* 0: any */
    struct kubernetes_config kubernetes;
    uint64_t outbox_bytes;
    unsigned meters;
    struct meter_config meter[CONFIG_METERS_MAX];
    unsigned switches;
    struct switch_config relay[CONFIG_SWITCHES_MAX];
    unsigned sensors;
    struct presence_config sensor[CONFIG_SENSORS_MAX];
};

/*
 * Reads a text; @file is for messages. Returns 0, and *ret is the caller's to free(); or -errno
 * with FILE:LINE and the reason. Most of it is never written, and costs no memory.
 */
int unit_config_parse(const char *text, const char *file, struct unit_config **ret,
                      struct error *err);
/* Whether it is a DNS name in lower case, as all names of nodes are. */
bool kubernetes_node_valid(const char *name);

int unit_config_load(const char *file, struct unit_config **ret, struct error *err);
