/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills in what manual pages and completions say of the attributes of jobs and of the policies, so
 * that both come from the tables that the programs use. A program of the build, not installed:
 * reads a template from stdin, writes it with each @…@ of `expansions` replaced to stdout.
 *
 *     @man SET@        paragraphs of options for scdoc; SET is start, change or docker
 *     @synopsis SET@   [*--min* _K_] [*--max* _K_] …
 *     @labels@         what may follow "io.threadtide."
 *     @words SET@      --min --max …
 *     @values SET@     cases of bash's `case $prev in`: what may follow such an option
 *     @cases SET@      --min | --max | …
 *     @zsh SET@        specifications for _arguments
 *     @fish SET@       options of `complete`
 *     @policies@       sections for scdoc: each policy with its parameters
 *     @policy-names@   equal fcfs …
 *     @messages@       tables in Markdown: the words of errors, cause and cure
 *     @message-words@  no-daemon no-such-job …
 *     @json@           the attributes, for tests
 */
#include "base/cleanup.h"
#include "cli/why/messages.h"
#include "policy/core/policy.h"
#include "proto/attribute.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 256

/* ---- attributes ---- */

static void bounds(const struct attribute *a)
{
    if (a->kind == KIND_NUMBER)
        printf(" From %" PRId64 " to %" PRId64, a->least, a->most);
    if (a->kind == KIND_NUMBER && !a->none)
        printf("; the default is %" PRId64, a->usual);
    if (a->kind == KIND_NUMBER)
        printf(".");
}

static void man(enum attributes_of set)
{
    const char *gap = "";

    for (each_attribute(a)) {
        if (!attribute_is_of(a, set))
            continue;
        printf("%s*--%s* _%s_\n\t%s", gap, a->key, a->value, a->page);
        bounds(a);
        if (set == ATTRIBUTES_OF_CHANGE && a->none_word)
            printf(" *none* takes it back.");
        for (int64_t i = a->least; a->kind == KIND_CHOICE && i <= a->most; i++)
            printf("%s*%s*: %s", i == a->least ? "++\n" : ";++\n", a->choices[i].name,
                   a->choices[i].text);
        printf("%s\n", a->kind == KIND_CHOICE ? "." : "");
        gap = "\n";
    }
}

static void synopsis(enum attributes_of set)
{
    const char *gap = "";

    for (each_attribute(a)) {
        if (!attribute_is_of(a, set))
            continue;
        printf("%s[*--%s* _%s_]", gap, a->key, a->value);
        gap = " ";
    }
}

static void labels(enum attributes_of unused)
{
    for (each_attribute(a))
        printf("%s*%s*", a == attribute_table ? "" : ", ", a->key);
}

static void separated(enum attributes_of set, const char *by)
{
    const char *gap = "";

    for (each_attribute(a)) {
        if (!attribute_is_of(a, set))
            continue;
        printf("%s--%s", gap, a->key);
        gap = by;
    }
}

static void words(enum attributes_of set)
{
    separated(set, " ");
}

static void cases(enum attributes_of set)
{
    separated(set, " | ");
}

static void names(const struct attribute *a)
{
    for (int64_t i = a->least; i <= a->most; i++)
        printf("%s%s", i == a->least ? "" : " ", a->choices[i].name);
}

/* Completes the names of a choice; the user writes other values. */
static void values(enum attributes_of set)
{
    for (each_attribute(a)) {
        if (!attribute_is_of(a, set))
            continue;
        printf("    --%s) COMPREPLY=(", a->key);
        if (a->kind == KIND_CHOICE) {
            printf("$(compgen -W \"");
            names(a);
            printf("\" -- \"$cur\")");
        }
        printf("); return ;;\n");
    }
}

/* Quotes for zsh, inside '…': a colon ends the text, a bracket the option's. */
static void zsh_text(const char *text)
{
    for (; *text; text++)
        printf(*text == '\'' ? "'\\''" : strchr(":[]\\", *text) ? "\\%c" : "%c", *text);
}

static void zsh(enum attributes_of set)
{
    char text[TEXT_MAX];

    for (each_attribute(a)) {
        if (!attribute_is_of(a, set))
            continue;
        printf("        '--%s[", a->key);
        zsh_text(attribute_help(a, text, sizeof(text)));
        printf("]:%s:", a->value);
        if (a->kind == KIND_CHOICE) {
            printf("(");
            names(a);
            printf(")");
        }
        printf("'\n");
    }
}

static void fish(enum attributes_of set)
{
    static const char *const commands[] = {
        [ATTRIBUTES_OF_START] = "run submit adopt",
        [ATTRIBUTES_OF_CHANGE] = "set",
        [ATTRIBUTES_OF_DOCKER] = "docker",
    };
    char text[TEXT_MAX];

    for (each_attribute(a)) {
        if (!attribute_is_of(a, set))
            continue;
        printf("complete -c tide -n '__fish_seen_subcommand_from %s' -l %s -x", commands[set],
               a->key);
        if (a->kind == KIND_CHOICE) {
            printf(" -a '");
            names(a);
            printf("'");
        }
        printf(" -d \"%s\"\n", attribute_help(a, text, sizeof(text)));
    }
}

static void json(enum attributes_of unused)
{
    static const char *const kinds[] = {
        [KIND_NUMBER] = "number", [KIND_MEMORY] = "memory",   [KIND_MOMENT] = "moment",
        [KIND_CHOICE] = "choice", [KIND_PROMISE] = "promise", [KIND_DEVICES] = "devices",
    };

    for (each_attribute(a)) {
        printf("%s{\"key\":\"%s\",\"shown\":\"%s\",\"kind\":\"%s\",\"least\":%" PRId64
               ",\"most\":%" PRId64 ",\"usual\":%" PRId64
               ",\"none\":%s,\"none_word\":%s,\"fixed\":%s,\"docker_has\":%s,\"names\":\"",
               a == attribute_table ? "[" : ",\n", a->key, a->shown ? a->shown : a->key,
               kinds[a->kind], a->least, a->most, a->usual, a->none ? "true" : "false",
               a->none_word ? "true" : "false", a->fixed ? "true" : "false",
               a->docker_has ? "true" : "false");
        if (a->kind == KIND_CHOICE)
            names(a);
        printf("\"}");
    }
    printf("]");
}

/* ---- policies ---- */

static void value(const struct policy_param *param, int64_t number)
{
    char buf[TEXT_MAX];

    policy_param_text(param, number, buf, sizeof(buf));
    printf("*%s*", buf);
}

static void parameter(const struct policy_param *param)
{
    printf("*%s*=", param->name);
    for (int64_t i = 0; param->names && i <= param->max - param->min; i++)
        printf("%s*%s*", i ? "|" : "", param->names[i]);
    printf("%s\n\t%c%s", param->names ? "" : "_VALUE_", param->text[0] & ~0x20, param->text + 1);
    if (!param->names) {
        printf("; ");
        value(param, param->min);
        printf(param->open ? " or more" : " to ");
        if (!param->open)
            value(param, param->max);
    }
    printf(". Default: ");
    value(param, param->def);
    printf(".\n\n");
}

static void policies(enum attributes_of unused)
{
    const struct policy *p;

    for (size_t i = 0; (p = policy_at(i)); i++) {
        printf("## %s\n\n%c%s.\n\n", p->name, p->brief[0] & ~0x20, p->brief + 1);
        for (uint32_t k = 0; k < p->param_count; k++)
            parameter(&p->params[k]);
    }
}

static void policy_names(enum attributes_of unused)
{
    const struct policy *p;

    for (size_t i = 0; (p = policy_at(i)); i++)
        printf("%s%s", i ? " " : "", p->name);
}

/* ---- messages ---- */

#define MESSAGE_TITLE(title)            "\n## " title "\n\n| word | cause | cure |\n|---|---|---|\n"
#define MESSAGE_ROW(word, cause, cure)  "| `" word "` | " cause " | " cure " |\n"
#define MESSAGE_NO_WORD(title)          ""
#define MESSAGE_WORD(word, cause, cure) word " "

static void messages(enum attributes_of unused)
{
    fputs(MESSAGES(MESSAGE_TITLE, MESSAGE_ROW), stdout);
}

static void message_words(enum attributes_of unused)
{
    fputs(MESSAGES(MESSAGE_NO_WORD, MESSAGE_WORD), stdout);
}

/* ---- templates ---- */

static const struct {
    const char *name;
    void (*print)(enum attributes_of set);
} expansions[] = {
    {"man", man},           {"synopsis", synopsis},
    {"labels", labels},     {"words", words},
    {"values", values},     {"cases", cases},
    {"zsh", zsh},           {"fish", fish},
    {"policies", policies}, {"policy-names", policy_names},
    {"messages", messages}, {"message-words", message_words},
    {"json", json},
};

static const struct {
    const char *name;
    enum attributes_of set;
} sets[] = {
    {"start", ATTRIBUTES_OF_START},
    {"change", ATTRIBUTES_OF_CHANGE},
    {"docker", ATTRIBUTES_OF_DOCKER},
};

/* Prints the expansion of "NAME" or "NAME SET" of @length bytes. False: no such expansion. */
static bool expand(const char *text, size_t length)
{
    size_t name = strcspn(text, " @");
    enum attributes_of set = ATTRIBUTES_NONE;

    for (size_t i = 0; name < length && i < ARRAY_LEN(sets); i++)
        if (strlen(sets[i].name) == length - name - 1 &&
            strncmp(text + name + 1, sets[i].name, length - name - 1) == 0)
            set = sets[i].set;
    if (name < length && set == ATTRIBUTES_NONE)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(expansions); i++) {
        if (strlen(expansions[i].name) != name || strncmp(text, expansions[i].name, name) != 0)
            continue;
        expansions[i].print(set);
        return true;
    }
    return false;
}

static void fill_in(const char *line)
{
    while (*line) {
        const char *end = *line == '@' ? strchr(line + 1, '@') : NULL;

        if (end && expand(line + 1, (size_t)(end - line - 1)))
            line = end + 1;
        else
            putchar(*line++);
    }
}

int main(void)
{
    _cleanup_free_ char *line = NULL;
    size_t size = 0;

    while (getline(&line, &size, stdin) > 0)
        fill_in(line);
    if (ferror(stdin) || fflush(stdout) != 0) {
        perror("document");
        return 1;
    }
    return 0;
}
