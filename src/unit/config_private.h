/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to config.c, config_device.c and config_value.c: a configuration that is being read. Each
 * function returns 0, or -EINVAL with FILE:LINE and the reason.
 */
#pragma once

#include "unit/config.h"

enum section {
    SECTION_NONE,
    SECTION_UNIT,
    SECTION_LOCAL,
    SECTION_UPLINK,
    SECTION_METER,
    SECTION_CHILD,
    SECTION_SWITCH,
    SECTION_PRESENCE,
    SECTION_TIDED,
    SECTION_KUBERNETES,
    SECTION_LIMITS
};

struct reader {
    const char *file;
    unsigned line;
    enum section section;
    struct unit_config *config;
    struct meter_config *meter; /* of the section */
    struct child_config *child;
    struct switch_config *relay;
    struct presence_config *sensor;
    struct error *err;
};

__attribute__((format(printf, 2, 3))) int config_wrong(struct reader *r, const char *fmt, ...);

/* ---- values (config_value.c) ---- */

int config_take_text(struct reader *r, const char *value, char *ret, size_t size);
int config_take_topic(struct reader *r, const char *value, char *ret, size_t size);
int config_take_path(struct reader *r, const char *value, char *ret);
int config_take_yes(struct reader *r, const char *value, bool *ret);
int config_take_number(struct reader *r, const char *value, uint64_t least, uint64_t most,
                       uint64_t *ret); /* decimal, or hexadecimal with 0x */
int config_take_address(struct reader *r, const char *value, char *host, uint16_t *port);
int config_take_duration(struct reader *r, const char *value, uint32_t *ret_s);
int config_take_watts(struct reader *r, const char *value, uint64_t *ret_uw);
int config_take_percent(struct reader *r, const char *value, uint32_t *ret_permille);

/* A unit as a factor: 1 kWh is 3.6e12 uJ. @wanted: enum amount_kind. */
int config_take_scale(struct reader *r, const char *value, uint32_t wanted, uint64_t *ret);
int config_unknown_key(struct reader *r, const char *key, const char *const *known, size_t n);

/* ---- meters, switches, presence (config_device.c) ---- */

int config_begin_meter(struct reader *r, const char *name);
int config_begin_switch(struct reader *r, const char *name);
int config_begin_presence(struct reader *r, const char *name);
int config_set_meter(struct reader *r, const char *key, const char *value);
int config_set_switch(struct reader *r, const char *key, const char *value);
int config_set_presence(struct reader *r, const char *key, const char *value);
int config_check_devices(struct reader *r);
