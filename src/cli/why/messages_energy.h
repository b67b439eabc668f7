/* SPDX-License-Identifier: Apache-2.0 */
/* The words of error messages of tide-hub and tide-power: see messages.h. */
#pragma once

#define MESSAGES_ENERGY(T, X)                                                                      \
    T("tide-hub")                                                                                  \
    X("broker-not-started",                                                                        \
      "'tide-hub broker' cannot become the broker: its user, its directory or the program "        \
      "mosquitto is missing, or not as it has to be.",                                             \
      "Install mosquitto, make the user tide-hub (systemd-sysusers) and give it the directory of " \
      "state, or name another by --user.")                                                         \
    X("no-sandbox",                                                                                \
      "The kernel cannot confine the broker (no Landlock); it runs, and may read all of its "      \
      "directory.",                                                                                \
      "Use Linux 5.13 or newer with Landlock; systemd's unit confines it as well.")                \
    X("hub-state",                                                                                 \
      "A file or folder of the hub's state cannot be made, read or written, or is another "        \
      "user's.",                                                                                   \
      "Run the command as the user who owns it ('sudo -u tide-hub tide-hub ...'), and look at "    \
      "the disk; 'tide-hub broker' makes the state at first.")                                     \
    X("authority-fault",                                                                           \
      "The hub's own certificate authority is incomplete, readable by others, damaged, or may "    \
      "not give this certificate: the name is taken, revoked, or asked too often.",                \
      "Restore the missing half from a backup; for a name see 'tide-hub unit list', 'tide-hub "    \
      "unit admit NAME'.")                                                                         \
    X("bad-token",                                                                                 \
      "The token is unknown, was used, has ended, or names no possible unit or area.",             \
      "Make a new one on the hub by 'tide-hub token NAME' and copy it whole; one is good once.")   \
    X("bad-policy-file",                                                                           \
      "A line of a power policy is not understood or contradicts another one; the message has "    \
      "line and column. The policy in force stays.",                                               \
      "Correct it there; tide-policy-file(5) describes the file, 'tide-hub policy check FILE' "    \
      "tries it.")                                                                                 \
    X("policy-not-applied",                                                                        \
      "The policy could not be put into force or sent: somebody else changed it meanwhile, none "  \
      "is in force, or the running hub was not reached. Units keep what they have.",               \
      "Read it again ('tide-hub policy show'), then apply your change to that; the hub's log "     \
      "tells the rest.")                                                                           \
    X("bad-carbon-file",                                                                           \
      "A line of the file of carbon intensities is not a time and a number; what was read before " \
      "counts.",                                                                                   \
      "Write lines as '2026-11-23T18:00Z 350'; tide-hub.conf(5) describes the file.")              \
    X("store-failed",                                                                              \
      "The database of records cannot be opened, read or written; units keep their records until " \
      "it takes them.",                                                                            \
      "The message quotes the database: look at its disk, its permissions, or at PostgreSQL. A "   \
      "newer program's file needs that program.")                                                  \
    X("store-locked", "Another program changes the hub's database at this moment.",                \
      "Try again; end what holds it (a backup, sqlite3 by hand) if it stays.")                     \
    X("nothing-stored", "No record of that unit, point or user is stored for that time.",          \
      "'tide-hub energy' without a name lists units and points; ask for a longer time by "         \
      "--since.")                                                                                  \
    X("question-too-long", "The answer would have too many steps, or takes too long to sum up.",   \
      "Ask for a longer step, a shorter time, or an area below.")                                  \
    X("bad-password",                                                                              \
      "The password is too short or long, too simple, or was typed differently the second time; "  \
      "nothing was changed.",                                                                      \
      "Choose one of 10 bytes or more that does not hold the user's name.")                        \
    X("login-refused",                                                                             \
      "Name and password do not fit, the user is gone, or there were too many wrong passwords.",   \
      "An administrator sets a new one by 'tide-hub user passwd NAME'; wait as long as the "       \
      "message says.")                                                                             \
    X("not-logged-in", "The request has no session and no token that is valid.",                   \
      "Log in on the page, or send a token of 'tide-hub user token NAME': Authorization: Bearer "  \
      "TOKEN.")                                                                                    \
    X("role-too-low",                                                                              \
      "The user's role does not allow it, or a page of another site asked for it.",                \
      "See docs/permissions.md; an administrator changes roles by 'tide-hub user role'.")          \
    X("hub-has-none", "There is no unit, area, user, switch or path of that name.",                \
      "The lists (GET /v1/units, /v1/areas) have the names; docs/openapi-hub.yaml has the paths.") \
    X("hub-conflict",                                                                              \
      "What the request asks for contradicts what is there: no policy is in force, the name is "   \
      "taken, or the unit is away.",                                                               \
      "Read the present state again; the message says what stands against it.")                    \
    X("hub-busy", "The user or the address asks more often than the hub answers.",                 \
      "Wait as long as Retry-After says; follow GET /v1/events instead of asking again and "       \
      "again.")                                                                                    \
    X("hub-full", "The hub has as many users, tokens or sessions as it takes.",                    \
      "Remove those that nobody needs: 'tide-hub user list'.")                                     \
    X("switch-refused",                                                                            \
      "A switch cannot be operated: the unit is away, has no such switch, or its configuration "   \
      "keeps it on or forbids people to use it.",                                                  \
      "The page shows the unit's switches and their state; tide-power.conf(5) has the keys of "    \
      "[switch] that allow or forbid it.")                                                         \
    X("hub-above",                                                                                 \
      "The hub above is not reached, sent what is not valid, or lends less than the floors of "    \
      "this hub's areas.",                                                                         \
      "See its log and 'parent' in tide-hub.conf(5); its policy has to promise this hub as much "  \
      "as these floors.")                                                                          \
    T("tide-power")                                                                                \
    X("enrolment-failed",                                                                          \
      "The unit got no certificate: the hub is not reached, is not the one that made the token, "  \
      "or refused, or a file cannot be written.",                                                  \
      "Compare the address with 'tide-hub token', run it as root, and use --force to replace a "   \
      "unit that is there already.")                                                               \
    X("unit-silent",                                                                               \
      "tide-power does not answer at its port of metrics: it does not run, or its event loop "     \
      "stands still.",                                                                             \
      "'systemctl status tide-power' and its log; [unit] metrics= names the port.")                \
    X("meter-lost",                                                                                \
      "A meter does not answer, refuses the login, or tells what cannot be; its power counts as "  \
      "unknown until it is heard again.",                                                          \
      "The message says what came: try the device's address, user and password by hand; "          \
      "tide-power.conf(5) has each kind.")                                                         \
    X("switch-lost", "A switch or a sensor of presence cannot be used.",                           \
      "Look at the device and at its section in tide-power.conf(5).")                              \
    X("policy-refused",                                                                            \
      "A policy came that the hub did not seal for this unit, is older than the present one, or "  \
      "is not understood. The present one stays.",                                                 \
      "Look whether [uplink] seal= is this hub's key; enrol the unit anew where the hub was made " \
      "anew.")                                                                                     \
    X("policy-ended",                                                                              \
      "The policy is past its end and the hub has sent no other; what the message says holds "     \
      "until it does.",                                                                            \
      "Connect the unit with its hub; 'valid' in tide-policy-file(5) says how long a policy "      \
      "holds.")                                                                                    \
    X("rule-without-effect",                                                                       \
      "A rule of the policy names a switch or a value that this unit does not have.",              \
      "Correct the rule, or add the section to tide-power.conf(5).")                               \
    X("floors-above-cap",                                                                          \
      "The floors of the children are together above the area's cap, and are lent all the same: "  \
      "the cap is not kept by them alone.",                                                        \
      "Raise the area's cap or lower the floors in the policy.")                                   \
    X("command-refused",                                                                           \
      "A command was ignored: it was not sealed for this unit, is old, or is another unit's.",     \
      "Look whether [uplink] seal= is this hub's key, and whether somebody else publishes at the " \
      "broker.")                                                                                   \
    X("tided-refuses",                                                                             \
      "tided on this machine does not answer tide-power, or refuses what it asks for.",            \
      "Look whether tided runs ('systemctl status tided') and whether the user of tide-power is "  \
      "in its power group ('power-group' in tide.conf(5)).")
