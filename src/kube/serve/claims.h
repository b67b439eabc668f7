/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a token says of itself, before anybody is asked whether it is genuine: enough to refuse what
 * the API server would refuse, too, or what it would say is somebody else's. Pure, any thread;
 * called by channel.c.
 */
#pragma once

enum claims {
    CLAIMS_FIT,     /* if it is genuine */
    CLAIMS_NONE,    /* it is no JSON Web Token */
    CLAIMS_OTHERS,  /* for another audience */
    CLAIMS_NO_POD,  /* of an account alone */
    CLAIMS_FOREIGN, /* of a pod in another namespace */
};

enum claims claims_check(const char *token, const char *audience, const char *name_space);
