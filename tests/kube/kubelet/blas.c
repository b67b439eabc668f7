/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: blas PORT
 * A program that knows nothing of the agent: multiplies with NumPy's OpenBLAS, a few times a
 * second. Whoever connects to the port is told how many threads OpenBLAS has now, and whether the
 * agent is in the process: "2 agent", "4 alone".
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N 192

void scipy_cblas_sgemm64_(int order, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                          float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                          float beta, float *c, int64_t ldc);
int scipy_openblas_get_num_threads64_(void);

static const char *company(void)
{
    static char line[4096];
    const char *found = "alone";
    FILE *f = fopen("/proc/self/maps", "r");

    while (f && fgets(line, sizeof(line), f))
        if (strstr(line, "libtide-agent.so"))
            found = "agent";
    if (f)
        fclose(f);
    return found;
}

static void *serve(void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*(uint16_t *)arg)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 8) < 0)
        exit(1);
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        dprintf(fd, "%d %s\n", scipy_openblas_get_num_threads64_(), company());
        close(fd);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static float a[N * N], b[N * N], c[N * N];
    uint16_t port = argc == 2 ? (uint16_t)atoi(argv[1]) : 0;
    pthread_t server;

    if (port == 0 || pthread_create(&server, NULL, serve, &port) != 0)
        return 1;
    for (;;) { /* row major, not transposed */
        scipy_cblas_sgemm64_(101, 111, 111, N, N, N, 1, a, N, b, N, 0, c, N);
        usleep(50 * 1000);
    }
}
