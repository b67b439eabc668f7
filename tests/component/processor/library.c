/* SPDX-License-Identifier: Apache-2.0 */
/* Looks like a library of ggml, and by another name like one of ONNX Runtime. */
void ggml_graph_plan(void);

void ggml_graph_plan(void)
{
}
