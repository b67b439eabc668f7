/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: infer MODEL INPUT OUTPUT
 *
 * A plain C program that runs a SavedModel (float [64,512] -> float) through TensorFlow's C API, as
 * a user would write it. A second session comes and goes. Prints "ready" after the first run; then
 * runs until its standard input ends, checks that every result was the same, prints "same N".
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copied from tensorflow/c/c_api.h, which is not needed to build this. */
typedef struct TF_Status TF_Status;
typedef struct TF_Graph TF_Graph;
typedef struct TF_SessionOptions TF_SessionOptions;
typedef struct TF_Session TF_Session;
typedef struct TF_Operation TF_Operation;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_Output {
    TF_Operation *oper;
    int index;
} TF_Output;
enum { TF_FLOAT = 1 };
TF_Status *TF_NewStatus(void);
int TF_GetCode(const TF_Status *status);
const char *TF_Message(const TF_Status *status);
TF_Graph *TF_NewGraph(void);
TF_SessionOptions *TF_NewSessionOptions(void);
TF_Session *TF_LoadSessionFromSavedModel(const TF_SessionOptions *options, const void *run_options,
                                         const char *path, const char *const *tags, int tag_count,
                                         TF_Graph *graph, void *meta, TF_Status *status);
TF_Operation *TF_GraphOperationByName(TF_Graph *graph, const char *name);
TF_Tensor *TF_AllocateTensor(int type, const int64_t *dims, int count, size_t size);
void *TF_TensorData(const TF_Tensor *tensor);
size_t TF_TensorByteSize(const TF_Tensor *tensor);
void TF_DeleteTensor(TF_Tensor *tensor);
void TF_SessionRun(TF_Session *session, const void *run_options, const TF_Output *inputs,
                   TF_Tensor *const *input_values, int input_count, const TF_Output *outputs,
                   TF_Tensor **output_values, int output_count, const void *targets,
                   int target_count, void *meta, TF_Status *status);
void TF_CloseSession(TF_Session *session, TF_Status *status);
void TF_DeleteSession(TF_Session *session, TF_Status *status);

static TF_Status *status;

static void check(void)
{
    if (TF_GetCode(status) != 0) {
        printf("error %s\n", TF_Message(status));
        exit(1);
    }
}

struct model {
    TF_Graph *graph;
    TF_Session *session;
    TF_Output input;
    TF_Output output;
};

static void model_load(struct model *model, char **argv)
{
    const char *tags[] = {"serve"};

    model->graph = TF_NewGraph();
    model->session = TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), NULL, argv[1], tags, 1,
                                                  model->graph, NULL, status);
    check();
    model->input = (TF_Output){TF_GraphOperationByName(model->graph, argv[2]), 0};
    model->output = (TF_Output){TF_GraphOperationByName(model->graph, argv[3]), 0};
    if (!model->input.oper || !model->output.oper) {
        printf("error no such operation\n");
        exit(1);
    }
}

static TF_Tensor *model_run(struct model *model, TF_Tensor *input)
{
    TF_Tensor *output = NULL;

    TF_SessionRun(model->session, NULL, &model->input, &input, 1, &model->output, &output, 1, NULL,
                  0, NULL, status);
    check();
    return output;
}

static void model_unload(struct model *model)
{
    TF_CloseSession(model->session, status);
    TF_DeleteSession(model->session, status);
}

int main(int argc, char **argv)
{
    const int64_t dims[] = {64, 512};
    struct pollfd input_end = {.fd = STDIN_FILENO, .events = POLLIN};
    struct model model;
    struct model second;
    TF_Tensor *input;
    TF_Tensor *first;
    int runs = 1;
    int same = 1;

    if (argc != 4)
        return 2;
    status = TF_NewStatus();
    input = TF_AllocateTensor(TF_FLOAT, dims, 2, 64 * 512 * sizeof(float));
    for (int i = 0; i < 64 * 512; i++)
        ((float *)TF_TensorData(input))[i] = (float)(i % 13) * 0.125f;
    model_load(&model, argv);
    first = model_run(&model, input);
    printf("ready\n");
    fflush(stdout);
    while (poll(&input_end, 1, 0) == 0) {
        TF_Tensor *output;

        if (runs % 100 == 50)
            model_load(&second, argv);
        if (runs % 100 == 60)
            model_unload(&second);
        output = model_run(&model, input);
        same &= TF_TensorByteSize(output) == TF_TensorByteSize(first) &&
                memcmp(TF_TensorData(output), TF_TensorData(first), TF_TensorByteSize(first)) == 0;
        TF_DeleteTensor(output);
        runs++;
    }
    model_unload(&model);
    printf("%s %d\n", same ? "same" : "different", runs);
    return 0;
}
