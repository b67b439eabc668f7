/* SPDX-License-Identifier: Apache-2.0 */
/* An open store. Private to this room: store.c makes and ends it. */
#pragma once

#include "hub/store/store.h"
#include "hub/store/store_dialect.h"
#include "power/calendar/zone.h"

enum { STEP_SECOND = 1, STEP_MINUTE = 60, STEP_QUARTER = 900 };

#define NOTE_ZONE   "zone"  /* whose days are counted */
#define NOTE_UNTIL  "until" /* days from here on, in ms, are counted again already; "0": all are */
#define NOTE_UNITS  "units" /* a hash of the names of those that count, and how many */
#define NOTE_COSTS  "costs" /* since which day in ms there are some, and in which currency */
#define NOTE_MAX    80
#define POINTS_KEPT 65536 /* the newest totals that are remembered */
#define BOOTS_KEPT  8     /* of one point: earlier ones whose totals are remembered */
#define DAYS_KEPT   256   /* sums that wait for the end of a transaction … */
#define NEWS_KEPT   64    /* … and of these */

/* The newest total of a point, as it stands in the store or in the present transaction. */
struct known {
    int64_t id, last_ms;
    uint64_t boot, seq;
    struct energy_range total;
    bool whole; /* it adds up to the organization */
};

/* The energy that the present transaction adds to a point's day. */
struct day_sum {
    int64_t point, begin_ms, gap_ms;
    struct energy_range energy;
    uint64_t cost, priced; /* in billionths of the currency; of so much of the energy, in uJ */
};

/* The part that the present transaction adds to what the hub above is told. */
struct news_sum {
    int64_t to_ms, gap_ms;
    struct energy_range energy;
};

struct memory; /* memory.c: known totals by unit and point */

struct store {
    struct db *db;
    struct memory *memory;
    struct zone *zone;
    struct day_sum day[DAYS_KEPT];
    size_t days;
    struct news_sum news[NEWS_KEPT];
    size_t n_news;
    int64_t told_ms;          /* up to when the hub above knows all; 0: there is none */
    int64_t begin_ms, end_ms; /* of the day that was asked for last */
    int64_t filled_ms;        /* NOTE_UNTIL; 0: all days are counted */
    store_price *price;       /* NULL: there is no tariff */
    void *price_arg;
    int64_t costs_ms; /* the first day whose costs are in its currency */
    int64_t users_ms; /* when old users' rows were dropped last */
    bool inside;      /* a transaction */
    int failed;       /* within it */
};

/* The first millisecond of the day that @ms belongs to, and the next day's. */
int64_t store_day(struct store *s, int64_t ms, int64_t *ret_end_ms);

/* days.c: of a store that was just opened; one more day is counted again (1: there are more). */
int store_load_days(struct store *s, struct error *err);
int store_fill_day(struct store *s, struct error *err);

/* costs.c: the cost of @uj that were used evenly in that time; returns false: nobody knows. */
bool store_cost(const struct store *s, uint64_t uj, int64_t from_ms, int64_t to_ms, uint64_t *ret);
/* The price of a quarter of an hour, in whole thousandths a kWh; -1: there is no tariff. */
int64_t store_quarter_price(const struct store *s, int64_t from_ms);

/* whole.c: a record adds to it; sums that wait, with which all transactions end. */
int store_add_news(struct store *s, int64_t to_ms, const struct energy_range *e, int64_t gap_ms);
int store_write_news(struct store *s);

/* transaction.c. */
int store_note(struct store *s, const char *name, char ret[NOTE_MAX]); /* -ENOENT: none */
int store_set_note(struct store *s, const char *name, const char *value);
/* The number in the first row; -ENOENT: there is none. */
int store_ask_number(struct store *s, enum statement which, const struct values *v, int64_t *ret);
/* Sums of days that wait; all transactions end with them. */
int store_write_days(struct store *s);
/* Whatever was remembered of a transaction that came to nothing is forgotten. */
void store_roll_back(struct store *s);
/* Sets *err for a negative @r, with the database's own words. Returns @r. */
int store_said(struct store *s, int r, const char *doing, struct error *err);
