/* SPDX-License-Identifier: Apache-2.0 */
/* The words of error messages of the programs of clusters and containers: see messages.h. */
#pragma once

#define MESSAGES_CLUSTER(T, X)                                                                     \
    T("tide-kube and kubectl tide, tide-pods")                                                     \
    X("cluster-refused",                                                                           \
      "The API server of Kubernetes does not answer, ended a watch, or refused the request; the "  \
      "program tries again by itself.",                                                            \
      "'kubectl get --raw /readyz' tries the server; the message quotes it: for a missing right "  \
      "see the chart's ClusterRole, for an object in the way its name.")                           \
    X("bad-kubeconfig",                                                                            \
      "No way to the cluster was found: kubeconfig or the pod's account is missing, or holds "     \
      "what is not supported.",                                                                    \
      "Set KUBECONFIG or --kubeconfig, choose a context by --context, or run it in a pod with a "  \
      "service account.")                                                                          \
    X("not-installed", "The cluster does not know the kind ElasticTrainingJob.",                   \
      "Install the chart, or 'kubectl apply -f crd.yaml'; docs/kubernetes.md.")                    \
    X("bad-object",                                                                                \
      "An object of the API server has a field that is not possible; it is left alone until it "   \
      "is changed.",                                                                               \
      "Correct the field that the message names; 'kubectl explain' describes it.")                 \
    X("chief-refused",                                                                             \
      "A chief's report was not taken: another replica of tide-kube leads, its training is gone, " \
      "or another pod is its chief now.",                                                          \
      "Usually nothing: the chief asks again. Look at 'kubectl tide status' where it stays.")      \
    X("agent-not-spread",                                                                          \
      "The agent could not be brought into a namespace as a ConfigMap; its pods start without "    \
      "it.",                                                                                       \
      "The message quotes the API server: a right, a quota or a webhook; pods that start later "   \
      "get it once that is cured.")                                                                \
    X("no-nri",                                                                                    \
      "No container runtime speaks NRI on the socket; pods keep what they have, and tide-pods "    \
      "tries again by itself.",                                                                    \
      "Enable NRI in containerd (2.0 or newer) or CRI-O, and mount its socket: tide-pods(8).")     \
    T("tide-runc and tide-tfnode")                                                                 \
    X("container-unchanged",                                                                       \
      "The container starts as it is, without the agent: its OCI files cannot be read or edited, " \
      "or docker is called in a way that leaves no room for it.",                                  \
      "The message says what stood against it; 'tide doctor' in the container, and "               \
      "docs/containers.md.")                                                                       \
    X("no-oci-runtime", "tide-runc found neither runc nor crun, which start the container.",       \
      "Install one of them, or name it in TIDE_RUNC.")                                             \
    X("replica-not-started",                                                                       \
      "tide-tfnode cannot become a parameter server or worker: TensorFlow, a port or a thread is " \
      "not there.",                                                                                \
      "The message says which: install TensorFlow 2.15 or newer, or choose another --port.")
