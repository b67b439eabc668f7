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

helm=${HELM:-helm}
if ! command -v "$helm" >/dev/null; then
    echo "manifests.sh: there is no program '$helm'; install Helm, or name it in HELM. Nothing was written." >&2
    exit 1
fi
made=$(mktemp -d "$folder/.manifests.XXXXXX")
trap 'rm -rf "$made"' EXIT

# Several templates as one file, `kubectl apply -f FOLDER` takes the files by their names.
write() {
    file=$1
    shift
    "$helm" template threadtide "$root/dist/helm/threadtide" --namespace threadtide \
        --kube-version 1.34.0 --set namespace.create=true --set crd.install=false --set power.enabled=true \
        --set inject.enabled=true --set inject.authority=program --set pods.enabled=true \
        $(printf -- '--show-only templates/%s.yaml ' "$@") >"$made/rendered" || {
        echo "manifests.sh: $helm cannot render $file. Nothing was written." >&2
        exit 1
    }
    {
        echo "# SPDX-License-Identifier: Apache-2.0"
        echo "# Made from dist/helm/threadtide by scripts/manifests.sh."
        sed -e '/^# Source: /d' -e 's/managed-by: Helm$/managed-by: kubectl/' "$made/rendered"
    } >"$made/$file"
}

write namespace.yaml namespace serviceaccount
write rbac.yaml rbac
write admission.yaml admission
write power.yaml power
write pods.yaml pods
write inject.yaml inject
write tide-kube.yaml service deployment poddisruptionbudget networkpolicy
mv "$made"/*.yaml "$folder"
