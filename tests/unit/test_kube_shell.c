/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's I/O on a simulated clock: the API server is gone for a minute, clocks jump,
 * another program writes the controller's fields, chiefs report twice a second. Checks how many
 * requests that costs, and that the objects are right afterwards.
 */
#include "kube_shell.h"

#include "host/trust/identity.h"
#include "kube/api/access.h"
#include "kube/api/lease.h"
#include "kube/core/reconcile.h"
#include "kube/serve/trust.h"
#include "kube/shell/controller.h"

#define S  NS_PER_S
#define MS NS_PER_MS

/* ---- one replica ----------------------------------------------------------------------------- */

struct replica {
    struct client *client;
    struct lease *lease;
    struct controller *controller;
    struct kube_settings settings;
    struct kube_pod_settings pods;
    struct controller_options options;
    unsigned led, lost;  /* how often */
    unsigned gone, back; /* "lost the watch on …", "watch on … restored" */
    unsigned refused;    /* "… 403 Forbidden …" */
    bool leads;
    bool deposed; /* it may not act, and has not heard of it yet */
};

static struct sd_event *const loop = (struct sd_event *)&shell;

static bool leading(void *arg)
{
    struct replica *r = arg;

    return lease_leading(r->lease) && !r->deposed;
}

static void on_log(void *arg, const char *text)
{
    struct replica *r = arg;

    r->gone += strncmp(text, "lost the watch on", 17) == 0;
    r->back += strstr(text, "restored") != NULL;
    r->refused += strstr(text, "403") != NULL;
}

static void on_lease(void *arg, bool leads, const char *holder)
{
    struct replica *r = arg;

    (void)holder;
    r->led += leads && !r->leads;
    r->lost += !leads && r->leads;
    r->leads = leads;
    controller_lead(r->controller, leads);
}

static void start(struct replica *r, const char *identity)
{
    struct access access = {.server = strdup("https://test"), .name_space = strdup("default")};
    struct lease_options lease = {.name_space = "n", .name = "tide-kube", .identity = identity};

    memset(r, 0, sizeof(*r));
    kube_settings_init(&r->settings);
    r->pods = (struct kube_pod_settings){.controller = "c:8443", .ca_pem = "pem"};
    r->options = (struct controller_options){.settings = &r->settings,
                                             .pods = &r->pods,
                                             .identity = identity,
                                             .leading = leading,
                                             .log = on_log,
                                             .arg = r};
    assert_int_equal(client_new(loop, &access, NULL, &r->client, NULL), 0);
    assert_int_equal(controller_new(r->client, loop, &r->options, &r->controller), 0);
    assert_int_equal(lease_new(r->client, loop, &lease, on_lease, r, &r->lease), 0);
}

static void end(struct replica *r)
{
    lease_free(r->lease);
    controller_free(r->controller);
    client_free(r->client);
}

/* ---- a training ------------------------------------------------------------------------------ */

static json_t *json_of(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);

    if (!json)
        fail_msg("%s: %s", error.text, text);
    return json;
}

static void add_node(const char *name, const char *cpu)
{
    put_object("nodes", "", name,
               json_pack("{s:{}, s:{s:{s:s, s:s, s:s}, s:[{s:s, s:s}]}}", "spec", "status",
                         "allocatable", "cpu", cpu, "memory", "32Gi", "pods", "110", "conditions",
                         "type", "Ready", "status", "True"));
}

/* With two workers of one core, or with one that is resized between one and two. */
static void add_training(bool resized)
{
    const char *workers =
        resized ? "\"max\": 1, \"cpu\": {\"min\": \"1\", \"max\": \"2\"}" : "\"max\": 2";
    char text[600];

    snprintf(text, sizeof(text),
             "{\"spec\": {\"image\": \"i\", \"command\": [\"c\"],"
             " \"chief\": {\"resources\": {\"requests\": {\"cpu\": \"500m\"}}},"
             " \"ps\": {\"resources\": {\"requests\": {\"cpu\": \"500m\"}}},"
             " \"workers\": {\"min\": 1, %s,"
             " \"resources\": {\"requests\": {\"cpu\": \"1\"}, \"limits\": {\"cpu\": \"1\"}}}}}",
             workers);
    put_object("elastictrainingjobs", "n", "job", json_of(text));
}

/* Scheduler and kubelets: every pod is on the node, runs, and has the resources of its spec. */
static void run_pods(const char *node)
{
    json_t *pod;
    size_t i;

    json_array_foreach (shell.objects, i, pod) {
        const char *name = text_at(pod, "metadata", "name");
        char ip[32];

        if (!is_in(pod, "pods", ""))
            continue;
        snprintf(ip, sizeof(ip), "10.0.%d.%d", (int)strlen(name), (int)i);
        if (!*text_at(pod, "status", "phase"))
            change_object(pod, json_pack("{s:{s:s}, s:{s:s, s:s, s:[{s:s, s:s}]}}", "spec",
                                         "nodeName", node, "status", "phase", "Running", "podIP",
                                         ip, "conditions", "type", "Ready", "status", "True"));
    }
}

static unsigned steps, examples;

/* Its chief reports, with all workers and servers that have pods; twice as many are twice as fast.
 */
static unsigned report(struct replica *r, const char *job, unsigned step)
{
    json_t *nodes = json_array(), *body, *pod, *members = NULL;
    struct kube_report *report = NULL;
    struct error err = {0};
    const char *chief = NULL;
    unsigned status;
    size_t i;

    json_array_foreach (shell.objects, i, pod) {
        const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
        const char *role = json_string_value(json_object_get(labels, "threadtide.io/role"));
        const char *index = json_string_value(json_object_get(labels, "threadtide.io/index"));
        const char *of = json_string_value(json_object_get(labels, "threadtide.io/job"));

        if (!role || strcmp(of, job) != 0)
            continue;
        if (strcmp(role, "chief") == 0) {
            chief = text_at(pod, "metadata", "uid");
            continue;
        }
        examples += strcmp(role, "worker") == 0 ? 10 : 0;
        json_array_append_new(nodes, json_pack("{s:s,s:i,s:s,s:i}", "role", role, "index",
                                               atoi(index), "state", "in", "threads", 1));
    }
    body = json_pack("{s:i,s:i,s:f,s:f,s:i,s:o}", "step", (int)step, "examples", (int)examples,
                     "loss", 1.0 / (step + 1), "examples_per_s", 20.0, "compute_permille", 900,
                     "nodes", nodes);
    if (!chief || kube_report_parse(body, &report, &err) < 0) {
        assert_null(chief);
        json_decref(body);
        return 0;
    }
    report->at_ns = (int64_t)clock_now_ns();
    report->namespace = strdup("n");
    report->job = strdup(job);
    report->chief_uid = strdup(chief);
    status = controller_report(r->controller, report, &members, &err);
    json_decref(members);
    json_decref(body);
    return status;
}

static void (*meddle)(void); /* somebody else, twice a second; NULL: nobody */

/* Runs the cluster for so many seconds; only the API server may fail. */
static void live(struct replica *r, unsigned seconds)
{
    for (unsigned i = 0; i < 2 * seconds; i++) {
        if (shell.server == SERVER_UP)
            run_pods("node");
        if (meddle)
            meddle();
        steps++;
        report(r, "job", steps);
        shell_run(S / 2);
    }
}

static json_t *the_job(void)
{
    return find_object("elastictrainingjobs", "n", "job");
}

static json_t *job_status(void)
{
    return json_object_get(the_job(), "status");
}

static int workers(const char *key)
{
    return (int)json_integer_value(json_object_get(json_object_get(job_status(), "workers"), key));
}

static const char *degraded(void)
{
    json_t *condition;
    size_t i;

    json_array_foreach (json_object_get(job_status(), "conditions"), i, condition)
        if (strcmp(json_string_value(json_object_get(condition, "type")), "Degraded") == 0)
            return json_string_value(json_object_get(condition, "reason"));
    return "";
}

static unsigned events_of(const char *reason)
{
    unsigned n = 0;
    json_t *event;
    size_t i;

    json_array_foreach (shell.objects, i, event)
        n += is_in(event, "events", "") &&
             strcmp(json_string_value(json_object_get(event, "reason")), reason) == 0;
    return n;
}

static void begin_with(struct replica *r, bool resized, const char *refuses)
{
    shell_begin();
    shell.refuses = refuses;
    steps = examples = 0;
    add_node("node", "4");
    add_training(resized);
    start(r, "a");
    live(r, 60);
}

static void begin(struct replica *r, bool resized)
{
    begin_with(r, resized, NULL);
    assert_true(r->leads && r->led == 1 && r->lost == 0);
    assert_int_equal(workers("ready"), resized ? 1 : 2);
}

static void finish(struct replica *r)
{
    end(r);
    shell_end();
}

/* ---- the API server -------------------------------------------------------------------------- */

static void a_server_that_is_gone_for_a_minute_is_asked_seldom_and_taken_up_again(void **state)
{
    struct replica r;
    struct controller_counts before, after;
    unsigned asked;

    (void)state;
    for (enum shell_server how = SERVER_GONE; how <= SERVER_SILENT; how++) {
        begin(&r, false);
        controller_count(r.controller, &before);
        asked = shell.asked;
        shell_server(how);
        live(&r, 60);
        /* five watches, each up to 8 s apart; the lease, each 2 s; a status, ever more seldom;
         * Kueue, each 5 s */
        assert_in_range(shell.asked - asked, 5, 134);
        assert_int_equal(r.lost, 1);
        assert_false(lease_leading(r.lease));
        assert_int_equal(r.gone, how == SERVER_GONE ? 5 : 0);
        shell_server(SERVER_UP);
        change_object(the_job(), json_of("{\"metadata\": {\"generation\": 2},"
                                         " \"spec\": {\"workers\": {\"replicas\": 1}}}"));
        live(&r, 40);
        controller_count(r.controller, &after);
        assert_true(r.leads);
        assert_int_equal(r.led, 2);
        assert_int_equal(r.back, r.gone);
        /* watches went on where they were; and once more, for the lease */
        assert_int_equal(after.lists, before.lists + 5);
        assert_int_equal(workers("desired"), 1);
        finish(&r);
    }
}

static void what_went_by_while_the_server_was_gone_is_listed(void **state)
{
    struct replica r;
    struct controller_counts before, after;

    (void)state;
    begin(&r, false);
    controller_count(r.controller, &before);
    shell_server(SERVER_GONE);
    live(&r, 60);
    remove_object(find_object("pods", "n", "job-worker-0"));
    json_array_clear(shell.log); /* as etcd compacts */
    shell.compacted = shell.version;
    put_object("poddisruptionbudgets", "n", "b", json_of("{\"spec\": {}}"));
    shell_server(SERVER_UP);
    live(&r, 40);
    controller_count(r.controller, &after);
    assert_true(after.lists > before.lists);
    assert_int_equal(workers("ready"), 2); /* another has taken its place */
    assert_null(find_object("pods", "n", "job-worker-0"));
    assert_non_null(find_object("pods", "n", "job-worker-2"));
    finish(&r);
}

static void the_other_replica_leads_while_the_server_is_gone_for_one(void **state)
{
    struct replica r;

    (void)state;
    begin(&r, false);
    shell_server(SERVER_GONE);
    live(&r, 30);
    assert_false(lease_leading(r.lease));
    change_object(find_object("leases", "n", "tide-kube"),
                  json_of("{\"spec\": {\"holderIdentity\": \"b\", \"renewTime\": \"t\"}}"));
    shell_server(SERVER_UP);
    shell_run(14 * S);
    assert_false(lease_leading(r.lease));
    shell_run(8 * S); /* b has not renewed it for 15 s */
    assert_true(lease_leading(r.lease));
    finish(&r);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void what_is_refused_is_tried_ever_more_rarely_and_made_when_it_may(void **state)
{
    static const struct {
        const char *what, *path;
        bool resized;
    } cases[] = {{"services", "PATCH services", false}, {"pods/resize", "PATCH pods/resize", true}};
    struct replica r;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        begin_with(&r, cases[i].resized, cases[i].what);
        assert_string_equal(degraded(), "Refused");
        assert_in_range(shell_count(cases[i].path), 3, 8);
        assert_int_equal(events_of("Refused"), 1);
        assert_int_equal(workers("actual"), cases[i].resized ? 1 : 0);
        assert_true(!find_object("pods", "n", "job-chief") == !cases[i].resized);
        shell.refuses = NULL;
        live(&r, 200);
        assert_string_equal(degraded(), "AsExpected");
        assert_int_equal(workers("ready"), cases[i].resized ? 1 : 2);
        finish(&r);
    }
}

/* Namespaces lose their pods first, their trainings later. */
static void in_a_namespace_that_is_being_deleted_nothing_is_created_again(void **state)
{
    struct replica r;
    unsigned made;
    json_t *pod;

    (void)state;
    begin(&r, false);
    made = shell_count("POST pods");
    shell.namespace_ends = true;
    while ((pod = find_object("pods", "n", "job-chief")) ||
           (pod = find_object("pods", "n", "job-ps-0")) ||
           (pod = find_object("pods", "n", "job-worker-0")) ||
           (pod = find_object("pods", "n", "job-worker-1")))
        remove_object(pod);
    live(&r, 3600);
    assert_string_equal(degraded(), "NamespaceTerminating");
    assert_int_equal(shell_count("POST pods"), made + 1);
    assert_int_equal(r.refused, 1);
    remove_object(the_job());
    live(&r, 10);
    finish(&r);
}

static void another_authority_reaches_trainings_that_run(void **state)
{
    struct replica r;
    unsigned patched;
    json_t *config;

    (void)state;
    begin(&r, false);
    config = find_object("configmaps", "n", "job-ca");
    assert_string_equal(text_at(config, "data", "ca.crt"), "pem");
    r.pods.ca_pem = "both";
    controller_wake(r.controller);
    live(&r, 3);
    assert_string_equal(text_at(config, "data", "ca.crt"), "both");
    patched = shell_count("PATCH configmaps");
    live(&r, 60);
    assert_int_equal(shell_count("PATCH configmaps"), patched);
    finish(&r);
}

/* ---- another leader -------------------------------------------------------------------------- */

static json_int_t told(const char *part, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(job_status(), part), key));
}

/* As by a leader before, whose last call was long under way: the watch has not brought it yet. */
static void a_status_decided_on_old_news_is_not_written(void **state)
{
    struct replica r;
    json_int_t step;

    (void)state;
    begin(&r, false);
    shell.deaf = 1;
    change_object(the_job(),
                  json_of("{\"status\": {\"restarts\": 3, \"workers\": {\"nextIndex\": 9},"
                          " \"members\": {\"generation\": 77}}}"));
    step = told("progress", "step");
    for (unsigned i = 0; i < 2; i++) {
        live(&r, 60);
        assert_int_equal(json_integer_value(json_object_get(job_status(), "restarts")), 3);
        assert_int_equal(workers("nextIndex"), 9);
        assert_true(told("members", "generation") >= 77);
        assert_true((told("progress", "step") > step) == (i == 1));
        shell.deaf = 0;
    }
    remove_object(find_object("pods", "n", "job-worker-0"));
    live(&r, 60);
    assert_non_null(find_object("pods", "n", "job-worker-9"));
    finish(&r);
}

static void a_new_leader_decides_on_what_there_is_when_it_takes_over(void **state)
{
    struct replica a, b;
    unsigned made;
    json_int_t step;

    (void)state;
    shell_begin();
    steps = examples = 0;
    add_node("node", "4");
    start(&a, "a");
    shell_run(10 * S);
    start(&b, "b");
    shell_run(10 * S);
    assert_true(a.leads && !b.leads);
    add_training(false);
    shell_run(15 * MS);
    shell.deaf = 2; /* b has seen the training, and gets no further events */
    live(&a, 60);
    remove_object(find_object("pods", "n", "job-worker-0"));
    live(&a, 60);
    assert_non_null(find_object("pods", "n", "job-worker-2"));
    made = shell_count("POST pods");
    step = told("progress", "step");
    end(&a);
    live(&b, 60);
    assert_true(b.leads);
    assert_int_equal(shell_count("POST pods"), made);
    assert_int_equal(workers("nextIndex"), 3);
    assert_int_equal(workers("ready"), 2);
    assert_true(told("progress", "step") > step);
    finish(&b);
}

static unsigned writes(void)
{
    const char *key;
    unsigned n = 0;
    json_t *count;

    json_object_foreach (shell.counts, key, count)
        if (strncmp(key, "GET", 3) != 0 && !strstr(key, "leases"))
            n += (unsigned)json_integer_value(count);
    return n;
}

static void what_waits_for_its_turn_is_not_sent_when_another_may_lead(void **state)
{
    struct replica r;
    char name[16];
    unsigned sent;

    (void)state;
    begin(&r, false);
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "suspended-%d", i);
        put_object(
            "elastictrainingjobs", "n", name,
            json_of("{\"spec\": {\"image\": \"i\", \"command\": [\"c\"], \"suspend\": true}}"));
    }
    sent = writes();
    shell_run(S);
    assert_true(client_waiting(r.client) > 20);
    r.deposed = true;
    shell_run(LATENCY_NS); /* what was sent already */
    assert_in_range(writes() - sent, 20, 110);
    sent = writes();
    shell_run(8 * S);
    assert_int_equal(writes(), sent);
    assert_int_equal(client_waiting(r.client), 0);
    finish(&r);
}

static void on_released(void *arg)
{
    ++*(unsigned *)arg;
}

static bool is_renewing(void)
{
    const struct exchange *x = shell.exchanges;

    while (x && (x->dead || strcmp(x->plural, "leases") != 0))
        x = x->next;
    return x;
}

/* Another program labels the lease, before or in the middle of a renewal. */
static void a_lease_that_was_changed_is_given_back_all_the_same(void **state)
{
    json_t *lease;
    struct replica r;

    (void)state;
    for (unsigned renewing = 0; renewing < 2; renewing++) {
        unsigned released = 0;

        begin(&r, false);
        lease = find_object("leases", "n", "tide-kube");
        while (is_renewing() != renewing)
            shell_run(MS);
        change_object(lease, json_of("{\"metadata\": {\"labels\": {\"a\": \"b\"}}}"));
        lease_release(r.lease, on_released, &released);
        shell_run(S);
        assert_int_equal(released, 1);
        assert_string_equal(text_at(lease, "spec", "holderIdentity"), "");
        finish(&r);
    }
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static void a_clock_that_is_set_changes_nothing(void **state)
{
    const int64_t jumps[] = {3600, -7200, 86400 * 400ll, -86400 * 400ll};
    struct controller_counts before, after;
    struct replica r;
    unsigned asked, calm;

    (void)state;
    begin(&r, false);
    asked = shell.asked;
    live(&r, 60);
    calm = shell.asked - asked;
    controller_count(r.controller, &before);
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        shell.wall_ns += jumps[i] * (int64_t)S;
        asked = shell.asked;
        live(&r, 60);
        assert_in_range(shell.asked - asked, calm - 5, calm + 5);
    }
    controller_count(r.controller, &after);
    assert_true(r.leads && r.led == 1 && r.lost == 0 && r.gone == 0);
    assert_int_equal(after.lists, before.lists);
    assert_int_equal(workers("ready"), 2);
    finish(&r);
}

static void a_machine_that_slept_does_not_lead_when_it_wakes(void **state)
{
    struct replica r;

    (void)state;
    begin(&r, false);
    shell.slept_ns += 300 * S;
    assert_false(lease_leading(r.lease));
    assert_int_equal(report(&r, "job", ++steps), 503);
    live(&r, 10); /* no other replica has taken the lease */
    assert_true(lease_leading(r.lease) && r.led == 2 && r.lost == 1);
    finish(&r);
}

static unsigned issued;

static void on_trust(void *arg, const char *problem)
{
    (void)arg;
    assert_null(problem);
    issued++;
}

static void a_certificate_that_the_new_time_does_not_suit_is_made_anew(void **state)
{
    static const char *const hosts[] = {"tide-kube.n.svc"};
    const struct trust_options options = {
        .name_space = "n", .secret = "ca", .hosts = hosts, .n_hosts = 1};
    const struct {
        int64_t days;
        unsigned issued;
    } jumps[] = {{0, 1}, {400, 2}, {-400, 3}, {0, 3}};
    struct access access = {.server = strdup("https://test"), .name_space = strdup("default")};
    struct client *client;
    struct trust *trust;

    (void)state;
    shell_begin();
    issued = 0;
    put_object("secrets", "n", "ca", json_object());
    assert_int_equal(client_new(loop, &access, NULL, &client, NULL), 0);
    assert_int_equal(trust_new(client, loop, &options, on_trust, NULL, &trust, NULL), 0);
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        shell.wall_ns += jumps[i].days * 86400 * (int64_t)S;
        shell_run(120 * S);
        assert_int_equal(issued, jumps[i].issued);
    }
    trust_free(trust);
    identity_serve(NULL);
    client_free(client);
    shell_end();
}

/* ---- how much is asked ----------------------------------------------------------------------- */

static void progress_alone_is_written_seldom(void **state)
{
    struct replica r;
    unsigned asked, statuses;

    (void)state;
    begin(&r, false);
    live(&r, 120); /* until all is at rest */
    asked = shell.asked;
    statuses = shell_count("PATCH elastictrainingjobs/status");
    live(&r, 200); /* 400 reports */
    assert_in_range(shell_count("PATCH elastictrainingjobs/status") - statuses, 10, 21);
    assert_in_range(shell.asked - asked, 100, 140); /* mostly the lease */
    finish(&r);
}

static void others_undo_the_phase(void)
{
    change_object(the_job(), json_of("{\"status\": {\"phase\": \"Suspended\"}}"));
}

static void others_undo_the_finalizer(void)
{
    change_object(the_job(), json_of("{\"metadata\": {\"finalizers\": []}}"));
}

static void others_undo_the_size(void)
{
    json_t *pod;
    size_t i;

    json_array_foreach (shell.objects, i, pod)
        if (is_in(pod, "pods", "") && strstr(text_at(pod, "metadata", "name"), "-worker-")) {
            json_t *container =
                json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0);
            json_t *before = json_deep_copy(container);
            json_t *theirs = json_of("{\"requests\": {\"cpu\": \"1500m\"},"
                                     " \"limits\": {\"cpu\": \"1500m\"}}");

            json_object_update_recursive(json_object_get(container, "resources"), theirs);
            if (!json_equal(before, container))
                changed(pod, "MODIFIED");
            json_decref(before);
            json_decref(theirs);
        }
}

/*
 * Another program undoes each write of a field at once. The controller writes less and less often,
 * and reports it by an Event and a condition. When the fight is over, the field is right again.
 */
static void a_field_that_somebody_else_changes_back_is_not_fought_for(void **state)
{
    static const struct {
        void (*meddle)(void);
        const char *path;
    } fights[] = {{others_undo_the_phase, "PATCH elastictrainingjobs/status"},
                  {others_undo_the_finalizer, "PATCH elastictrainingjobs"},
                  {others_undo_the_size, "PATCH pods/resize"}};
    struct replica r;
    unsigned before;

    (void)state;
    for (size_t i = 0; i < sizeof(fights) / sizeof(fights[0]); i++) {
        begin(&r, fights[i].meddle == others_undo_the_size);
        live(&r, 120);
        before = shell_count(fights[i].path);
        meddle = fights[i].meddle;
        live(&r, 600);
        assert_in_range(shell_count(fights[i].path) - before, 3, 12);
        assert_string_equal(degraded(), "Contested");
        assert_int_equal(events_of("Contested"), 1);
        meddle = NULL;
        live(&r, 700);
        assert_string_equal(degraded(), "AsExpected");
        assert_string_equal(text_at(the_job(), "status", "phase"), "Running");
        finish(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_is_gone_for_a_minute_is_asked_seldom_and_taken_up_again),
        cmocka_unit_test(what_went_by_while_the_server_was_gone_is_listed),
        cmocka_unit_test(the_other_replica_leads_while_the_server_is_gone_for_one),
        cmocka_unit_test(what_is_refused_is_tried_ever_more_rarely_and_made_when_it_may),
        cmocka_unit_test(in_a_namespace_that_is_being_deleted_nothing_is_created_again),
        cmocka_unit_test(another_authority_reaches_trainings_that_run),
        cmocka_unit_test(a_status_decided_on_old_news_is_not_written),
        cmocka_unit_test(a_new_leader_decides_on_what_there_is_when_it_takes_over),
        cmocka_unit_test(what_waits_for_its_turn_is_not_sent_when_another_may_lead),
        cmocka_unit_test(a_lease_that_was_changed_is_given_back_all_the_same),
        cmocka_unit_test(a_clock_that_is_set_changes_nothing),
        cmocka_unit_test(a_machine_that_slept_does_not_lead_when_it_wakes),
        cmocka_unit_test(a_certificate_that_the_new_time_does_not_suit_is_made_anew),
        cmocka_unit_test(progress_alone_is_written_seldom),
        cmocka_unit_test(a_field_that_somebody_else_changes_back_is_not_fought_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
