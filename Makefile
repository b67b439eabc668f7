# SPDX-License-Identifier: Apache-2.0
# A thin front: meson builds, scripts/setup.sh installs what is missing, scripts/check.py tests.

BUILD  ?= build
PREFIX ?= /usr/local
# An environment of Python with TensorFlow for demo and benchmarks: the project's own by default.
PYTHON_TF = $(or $(TIDE_PYTHON_TF221),.venv/bin/python)
PYTHON_TORCH = $(or $(TIDE_PYTHON_TORCH),$(abspath .venv-torch/bin/python))

# Root builds as the owner of the build tree, who could not replace files of root's in there afterwards.
AS_OWNER = $(shell [ "$$(id -u)" != 0 ] || stat -c %U $(BUILD) 2>/dev/null | grep -vxE 'root|UNKNOWN' | sed 's/.*/runuser -u & --/')

.PHONY: all demo demo-docker demo-cluster demo-energy images packages rpm wheel wheel-old site check check-aarch64 check-all check-cluster check-kueue check-packages check-pods check-slurm check-quick install bench bench-cluster bench-energy bench-gain bench-runtimes reproduction soak clean help
.DEFAULT_GOAL := all

all:
	@scripts/setup.sh build
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD) --prefix $(PREFIX) -Dtests=false
	@$(AS_OWNER) ninja -C $(BUILD)

demo: all
	@scripts/setup.sh tf221
	@[ "$(MIX)" = tensorflow ] || scripts/setup.sh torch || echo 'demo: PyTorch and XGBoost cannot be installed here, see above: TensorFlow alone'
	@TIDE_BUILD_DIR=$(BUILD) $(PYTHON_TF) demo/run.py $(if $(MIX),--mix $(MIX))

demo-docker: all
	@scripts/setup.sh tf221 docker
	@TIDE_BUILD_DIR=$(BUILD) $(PYTHON_TF) demo/run.py --docker

# CLUSTER=CONTEXT: on a cluster that kubectl reaches by this context of its configuration, current: by its present one, as
# with KUBECONFIG=FILE on make's command line (not from the environment: nobody means a demo by that). Nothing is built for it.
THEIR_CLUSTER = $(or $(CLUSTER),$(if $(filter command,$(firstword $(origin KUBECONFIG))),current))

demo-cluster: all
ifneq ($(THEIR_CLUSTER),)
	@scripts/setup.sh images
	@TIDE_BUILD_DIR=$(BUILD) /usr/bin/python3 demo/your_cluster.py --context $(THEIR_CLUSTER) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(IMAGE),--image $(IMAGE))
else
	@scripts/setup.sh tf221 kube
	@TIDE_BUILD_DIR=$(BUILD) $(PYTHON_TF) demo/cluster.py
endif

# The page's pictures need a browser; without one the demo says so.
demo-energy: all
	@scripts/setup.sh tf221 energy
	@scripts/setup.sh ui || echo 'demo-energy: no browser here, so no pictures of the page'
	@ninja -C $(BUILD) tests/plant/plant_meter tests/plant/plant_points
	@TIDE_BUILD_DIR=$(BUILD) $(PYTHON_TF) demo/energy.py

images: all
	@scripts/setup.sh images
	@scripts/images.py --build $(BUILD)

packages:
	@scripts/setup.sh build packages
	@scripts/packages.py --to $(BUILD)/packages

rpm:
	@scripts/setup.sh build packages rpm
	@scripts/packages.py --rpm --to $(BUILD)/rpm

wheel:
	@scripts/setup.sh build wheel
	@python3 scripts/wheel.py --to $(BUILD)/wheel

# The same for glibc 2.28; fetches sources of Debian and zig's compiler, once.
wheel-old:
	@scripts/setup.sh build wheel-old
	@python3 scripts/wheel.py --old --to $(BUILD)/wheel-old

# The documents and manual pages, to be read in a browser from their files.
site: all
	@scripts/setup.sh site
	@scripts/site.py --build $(BUILD)

# The same commit twice, and once more as a later version; then installed, upgraded, removed in clean roots, in a virtual
# machine, with Debian's Slurm, and the chart on a control plane of Kubernetes.
check-packages: packages rpm wheel wheel-old
	@scripts/setup.sh check-packages
	@scripts/setup.sh cluster || echo 'check-packages: no virtual machines here, see above'
	@scripts/setup.sh kube || echo 'check-packages: no Kubernetes here, see above'
	@scripts/packages.py --no-lintian --vary --to $(BUILD)/packages-again
	@scripts/packages.py --rpm --vary --to $(BUILD)/rpm-again
	@python3 scripts/wheel.py --vary --to $(BUILD)/wheel-again
	@python3 scripts/wheel.py --old --vary --to $(BUILD)/wheel-old-again
	@scripts/packages.py --no-lintian --plus test --to $(BUILD)/packages-later
	@scripts/packages.py --binary --no-lintian --commit $$(cat tests/packages/old-release) --to $(BUILD)/packages-old
	@TIDE_PACKAGES=$(BUILD)/packages /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/packages

# A slurmctld and two slurmd of their own, in namespaces (as root).
check-slurm: all
	@scripts/setup.sh slurm
	@[ -e $(BUILD)/threadtide.so ] || { meson configure $(BUILD) --clearcache && meson setup --reconfigure $(BUILD); }
	@ninja -C $(BUILD)
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/slurm

# Trainings in queues of Kueue itself, and the example of a TrainJob by Kubeflow Trainer's definitions; not a part of CI.
check-kueue:
	@scripts/setup.sh build check kube kueue trainer tf221
	@[ -f build-check/gcc/build.ninja ] || meson setup build-check/gcc
	@ninja -C build-check/gcc
	@TIDE_BUILD_DIR=$(abspath build-check/gcc) TIDE_KUEUE=$$(scripts/setup.sh kueue | sed -n 's/.*TIDE_KUEUE=//p') \
		TIDE_TRAINER=$$(scripts/setup.sh trainer | sed -n 's/.*TIDE_TRAINER=//p') \
		$(PYTHON_TF) -m pytest -q -rs -p no:cacheprovider tests/kube/test_kueue.py tests/kube/test_crd.py

# Pods of a real kubelet and containerd 2 in a virtual machine share its cores (as root); not a part of CI.
check-pods:
	@scripts/setup.sh build check cluster kube containerd tf221 torch
	@[ -f build-check/gcc/build.ninja ] || meson setup build-check/gcc
	@ninja -C build-check/gcc
	@tests/cluster/image.py build-check/machine build-check/gcc
	@TIDE_BUILD_DIR=$(abspath build-check/gcc) TIDE_MACHINE=$(abspath build-check/machine) TIDE_PYTHON_TORCH=$(PYTHON_TORCH) TIDE_PYTHON_TF221=$(abspath $(PYTHON_TF)) \
		$(PYTHON_TF) -m pytest -q -rs -p no:cacheprovider tests/kube/shared_node.py

check:
	@scripts/setup.sh build check
	@/usr/bin/python3 scripts/check.py

# Where qemu cannot be installed or Kubernetes not built, their tests are skipped, and counted so.
check-cluster:
	@scripts/setup.sh build check
	@scripts/setup.sh cluster || echo 'check-cluster: no virtual machines here, see above'
	@/usr/bin/python3 scripts/check.py --cluster

# For another processor: compiled, and run emulated as far as that carries. Not a part of CI.
check-aarch64:
	@scripts/setup.sh build check aarch64
	@scripts/check-aarch64.sh

# Both, as CI does: what compiles runs beside what waits.
check-all:
	@scripts/setup.sh build check
	@scripts/setup.sh cluster || echo 'check-all: no virtual machines here, see above'
	@/usr/bin/python3 scripts/check.py --all

check-quick:
	@scripts/setup.sh build check
	@/usr/bin/python3 scripts/check.py --quick

# Builds again only if the prefix is another one: the place of the agent is compiled in.
install: all
	@$(AS_OWNER) meson configure $(BUILD) -Dprefix=$(PREFIX)
	@$(AS_OWNER) ninja -C $(BUILD)
	@meson install -C $(BUILD) --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

bench: all
	@scripts/setup.sh tf221 $(if $(filter 0,$(shell id -u)),kube)
	@TIDE_BUILD_DIR=$(BUILD) TIDE_BENCH_PYTHON=$(PYTHON_TF) bench/run.sh

bench-cluster: all
	@scripts/setup.sh tf221 kube
	@TIDE_BUILD_DIR=$(BUILD) TIDE_BENCH_PYTHON=$(PYTHON_TF) bench/cluster.sh

bench-energy: all
	@scripts/setup.sh check tf221
	@meson configure $(BUILD) -Dtests=true && ninja -C $(BUILD)
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) bench/energy.sh $(ROWS)

# Ten mixes of programs, no control and Threadtide and the best fixed threads: hours. CORES=64, MIXES=servers,light, ROUNDS=1.
bench-gain: all
	@scripts/setup.sh tf221 torch
	@TIDE_BUILD_DIR=$(BUILD) TIDE_BENCH_PYTHON=$(PYTHON_TF) $(PYTHON_TF) bench/gain_runs.py $(if $(CORES),--cores $(CORES)) $(if $(MIXES),--mixes $(MIXES)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-runtimes: all
	@scripts/setup.sh tf221 torch
	@TIDE_BUILD_DIR=$(BUILD) TIDE_BENCH_PYTHON=$(PYTHON_TF) $(PYTHON_TF) bench/demo_rounds.py
	@TIDE_BUILD_DIR=$(BUILD) TIDE_BENCH_PYTHON=$(PYTHON_TF) $(PYTHON_TF) bench/runtimes.py
	@TIDE_BUILD_DIR=$(BUILD) $(PYTHON_TF) bench/openmp.py

reproduction: all
	@TIDE_BUILD_DIR=$(BUILD) /usr/bin/python3 bench/reproduction.py

soak: all
	@scripts/setup.sh build check tf221 runtimes hosts
	@meson configure $(BUILD) -Dtests=true && ninja -C $(BUILD)
	@TIDE_SOAK=1 $(BUILD)/tests/unit/test_power_lease
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) $(or $(TIDE_PYTHON_RUNTIMES),.venv-runtimes/bin/python) -m pytest -q tests/runtimes
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) TIDE_SOAK=1 TIDE_PYTHON_RUNTIMES=$(or $(TIDE_PYTHON_RUNTIMES),$(abspath .venv-runtimes/bin/python)) $(PYTHON_TF) -m pytest -q tests/component/test_blas.py
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) TIDE_SOAK=1 $(PYTHON_TF) -m pytest -q tests/system
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) TIDE_SOAK=1 TIDE_PYTHON_TORCH=$(PYTHON_TORCH) $(PYTHON_TF) -m pytest -q tests/component/test_pytorch.py tests/component/test_openblas.py tests/component/test_xgboost.py \
		tests/component/test_onnx.py tests/component/test_ggml.py tests/component/test_llama.py tests/component/test_tbb.py
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) TIDE_SOAK=1 $(PYTHON_TF) -m pytest -q tests/component/test_tided_kills.py tests/component/test_tided_random.py
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) TIDE_SOAK=1 TIDE_PYTHON_TORCH=$(PYTHON_TORCH) TIDE_PYTHON_HOSTS=$(or $(TIDE_PYTHON_HOSTS),$(abspath .venv-hosts/bin/python)) $(PYTHON_TF) -m pytest -q tests/component/test_hosts.py tests/component/test_notebook.py tests/component/test_pytorch_faults.py
	@TIDE_BUILD_DIR=$(abspath $(BUILD)) TIDE_SOAK=1 TIDE_PYTHON_TORCH=$(PYTHON_TORCH) TIDE_LIBIOMP5=$(abspath .venv-runtimes/lib) $(PYTHON_TF) -m pytest -q tests/component/test_suites.py tests/component/test_openmp.py
	@scripts/run-fuzzers.sh 60 build-check/fuzz

clean:
	rm -rf build build-check

help:
	@echo 'make              build: $(BUILD)/tide, $(BUILD)/tided, $(BUILD)/libtide.so, the agent'
	@echo 'make demo         TensorFlow, PyTorch, XGBoost and a forest share this machine, without and with Threadtide'
	@echo 'make demo-docker  three TensorFlow trainings, each in a container of a Docker Engine (as root)'
	@echo 'make demo-cluster a training on Kubernetes grows and shrinks (control plane and node of its own; as root)'
	@echo '                  CLUSTER=CONTEXT or KUBECONFIG=FILE: on a cluster that exists (kind, k3s, …), without building Kubernetes'
	@echo 'make demo-energy  a laboratory with less power from 18:00 on: hub, three areas, three trainings; six minutes'
	@echo 'make images       container images for Kubernetes in $(BUILD)/images, without a registry'
	@echo 'make packages     Debian packages of the last commit in $(BUILD)/packages'
	@echo 'make rpm          the same as RPM in $(BUILD)/rpm, to see that the spec for Fedora builds'
	@echo 'make wheel        a wheel for pip with tide, tided and the agent, in $(BUILD)/wheel'
	@echo 'make wheel-old    the same for glibc 2.28 (RHEL 8 and later), in $(BUILD)/wheel-old'
	@echo 'make site         docs/ and the manual pages as a site in $(BUILD)/site, which works from its files'
	@echo 'make check        the tests that need neither Kubernetes nor a virtual machine, about 40 minutes; installs what it needs'
	@echo 'make check-cluster  tests with Kubernetes, and in virtual machines: cgroup v2, systemd, 64 cores'
	@echo 'make check-all    both of these at once, as CI does: shorter than one after the other'
	@echo 'make check-packages  packages and wheels made twice; installed, upgraded, removed with and without systemd; the chart with Helm (as root)'
	@echo 'make check-aarch64  everything cross-compiled for aarch64, unit tests and some others emulated (half an hour)'
	@echo 'make check-kueue  trainings in queues of Kueue itself (built once in five minutes; then a minute)'
	@echo 'make check-pods   PyTorch and TensorFlow in pods share the cores of a virtual machine with kubelet and containerd 2 (as root, half an hour)'
	@echo 'make check-slurm  srun --malleable with a real slurmctld and two slurmd (as root)'
	@echo 'make check-quick  what to run between two edits: one compiler, no TensorFlow'
	@echo 'make install      into PREFIX ($(PREFIX)), under DESTDIR if set'
	@echo 'make bench        the measurements of docs/benchmarks.md: two hours; as root also containers, energy, clusters, about seven'
	@echo '                  (TIDE_OLD_BUILD=DIR: also against the build tree of an older commit; other runtimes: make bench-runtimes)'
	@echo 'make bench-cluster  the measurements of elastic clusters, about an hour and a half (as root)'
	@echo 'make bench-gain   ten mixes of programs, with no control, under Threadtide, with the best fixed threads (CORES= MIXES= ROUNDS=)'
	@echo 'make bench-runtimes PyTorch, scikit-learn, XGBoost and others beside TensorFlow, two hours; not a part of make bench'
	@echo 'make bench-energy the measurements of energy, about five hours (as root)'
	@echo 'make reproduction simulates the experiments of docs/reproduction.md, under a minute'
	@echo 'make soak         thousands of resizes of real trainings, 10,000 kills of tided, random orders, half an hour of fuzzing'
	@echo 'make clean        remove what was built (the environments .venv* stay)'
