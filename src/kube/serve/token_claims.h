/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a token's claims before the API server is asked whether it is genuine. This refuses tokens
 * that the API server would refuse, too, or would assign to somebody else. Pure, any thread; called
 * by chiefs_channel.c.
 */
#pragma once

enum token_claims {
    TOKEN_CLAIMS_FIT,     /* acceptable if genuine */
    TOKEN_CLAIMS_NONE,    /* not a JSON Web Token */
    TOKEN_CLAIMS_OTHERS,  /* for another audience */
    TOKEN_CLAIMS_NO_POD,  /* names an account, but no pod */
    TOKEN_CLAIMS_FOREIGN, /* names a pod in another namespace */
};

enum token_claims token_claims_check(const char *token, const char *audience,
                                     const char *name_space);
