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

struct device_ops;

/* A meter, as its section says. */
struct meter_config {
    unsigned line; /* of the section */
    char name[48];
    const struct device_ops *ops;
    char topic[CONFIG_TEXT_MAX];                                    /* MQTT */
    char power_path[CONFIG_TEXT_MAX], energy_path[CONFIG_TEXT_MAX]; /* kind=json */
    char host[CONFIG_TEXT_MAX];                                     /* kind=modbus */
    uint16_t port;
    uint8_t modbus_unit;
    uint64_t power_scale, energy_scale; /* uW and uJ of 1 in what the meter tells; kind=json */
    uint32_t error_permille;            /* what it may be wrong by */
    uint64_t most_uw;                   /* more is a lie */
    uint32_t period_s;                  /* between polls, or the longest silence that is no gap */
    bool covers_area;                   /* it measures all that the area draws */
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

struct unit_config {
    char name[EDGE_NAME_MAX];
    uint64_t cap_uw; /* of all children together; 0: none */
    uint32_t kind;   /* enum cap_kind */
    unsigned children;
    struct child_config child[CONFIG_CHILDREN_MAX];
    char state_dir[CONFIG_PATH_MAX];
    char tided_socket[CONFIG_PATH_MAX]; /* empty: no machine is linked */
    struct broker_config local, uplink;
    uint64_t outbox_bytes;
    unsigned meters;
    struct meter_config meter[CONFIG_METERS_MAX];
};

/* Reads a text; @file is for messages. Returns 0 or -errno with FILE:LINE and the reason. */
int unit_config_parse(const char *text, const char *file, struct unit_config *ret,
                      struct error *err);
int unit_config_load(const char *file, struct unit_config *ret, struct error *err);
