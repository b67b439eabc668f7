/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a token says of itself, before anybody is asked whether it is genuine: enough to refuse what
 * the API server would refuse, too, or what it would say is somebody else's. Pure, any thread;
 * called by chiefs_channel.c.
 */
#pragma once

enum token_claims {
    TOKEN_CLAIMS_FIT,     /* if it is genuine */
    TOKEN_CLAIMS_NONE,    /* it is no JSON Web Token */
    TOKEN_CLAIMS_OTHERS,  /* for another audience */
    TOKEN_CLAIMS_NO_POD,  /* of an account alone */
    TOKEN_CLAIMS_FOREIGN, /* of a pod in another namespace */
};

enum token_claims token_claims_check(const char *token, const char *audience,
                                     const char *name_space);
