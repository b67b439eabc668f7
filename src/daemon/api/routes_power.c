/* SPDX-License-Identifier: Apache-2.0 */
/* The paths about power and energy. */
#include "daemon/api/api.h"
#include "daemon/api/view.h"
#include "daemon/daemon.h"
#include "daemon/energy/meter.h"

void routes_power(struct request *r, struct job *none)
{
    meter_refresh(r->daemon->meter);
    request_answer(r, HTTP_OK, view_power(r->daemon, &r->who));
}

void routes_power_sources(struct request *r, struct job *none)
{
    meter_refresh(r->daemon->meter);
    request_answer(r, HTTP_OK, view_power_sources(r->daemon));
}
