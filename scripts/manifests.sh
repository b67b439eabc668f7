#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes the plain manifests of dist/kubernetes/ from the Helm chart, which is their one source
# (crd.yaml is a source itself, and the chart's, too).
#
#   scripts/manifests.sh [FOLDER]       HELM names the program (helm)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$root/dist/kubernetes}

# Several templates as one file, `kubectl apply -f FOLDER` takes the files by their names.
write() {
    file=$1
    shift
    {
        echo "# SPDX-License-Identifier: Apache-2.0"
        echo "# Made from dist/helm/threadtide by scripts/manifests.sh."
        "${HELM:-helm}" template threadtide "$root/dist/helm/threadtide" --namespace threadtide \
            --kube-version 1.34.0 --set namespace.create=true --set crd.install=false \
            $(printf -- '--show-only templates/%s.yaml ' "$@") |
            sed -e '/^# Source: /d' -e 's/managed-by: Helm$/managed-by: kubectl/'
    } >"$folder/$file.new"
    mv "$folder/$file.new" "$folder/$file"
}

write namespace.yaml namespace serviceaccount
write rbac.yaml rbac
write admission.yaml admission
write tide-kube.yaml service deployment poddisruptionbudget networkpolicy
