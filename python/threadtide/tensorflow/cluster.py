# SPDX-License-Identifier: Apache-2.0
"""The cluster while it changes: nodes come, leave and die, and nobody waits for them.

A node goes through joining -> in -> draining -> released, or to lost from any state. Three threads
work here. The channel's thread brings the list of members. The links' thread brings what nodes
say; when a link ends, its node counts as lost. A third thread changes TensorFlow's cluster while
the training goes on. It adds a node only after the node's control port has said that it is ready,
so that nobody waits for an absent node; a node that hangs later holds up that thread alone.

No node is told to end while TensorFlow connects to it or has it in its cluster. TensorFlow tells
every new function, also one of the user's evaluation, to all nodes of its cluster, and waits 15 s
or longer for an address where nobody is. For the same reason a lost node leaves TensorFlow's
cluster at once, and all connections to it are ended. An index is never used twice.
"""

import contextlib
import socket
import threading
import time

import tensorflow as tf

from threadtide.tensorflow import private
from threadtide.tensorflow.disconnect import disconnect
from threadtide.tensorflow.log import log
from threadtide.tensorflow.nodes import NodeLinks

RETRY_S = 1.0
RELEASE_S = 2.0
CUT_S, CUT_FOR_S = 0.05, 3.0


class Node:
    """A parameter server or worker."""

    def __init__(self, member):
        self.role, self.index = member.role, member.index
        self.member = member
        self.state = "joining"
        self.ready = False  # TensorFlow's port listens, says the node
        self.leaving = False  # the members, or a SIGTERM to the node, ask it to leave
        self.empty = False  # nothing of the training is on it any more
        self.threads = 0  # active ones, as the node said last
        self.fed = member.role != "worker"  # whether what it prepares can be asked for
        self.asked = 0  # threads that the node was told to have; 0: nothing was said
        self.not_before = 0.0  # of the next attempt to join

    @property
    def key(self):
        return (self.role, self.index)

    @property
    def alive(self):
        return self.state in ("in", "draining")

    @property
    def device(self):
        return f"/job:{self.role}/replica:0/task:{self.index}"

    def __str__(self):
        return f"{self.role} {self.index}"


class Cluster:
    """All nodes. The lock guards their states; `changed` is called, without it, when one
    changes."""

    def __init__(self, changed):
        self.lock = threading.Condition()
        self.nodes = {}
        self.suspended = False
        self.mode, self.slots = "", 0  # as the members say; "" and 0: they say nothing
        self._seen = set()  # every (role, index) there ever was
        self._in_tensorflow = set()
        self._connected = False
        self.updated = 0.0  # when TensorFlow's cluster was last changed
        self._changing = None  # the thread
        self._adding = []  # nodes
        self._changed = changed
        self._links = NodeLinks(self._on_event)
        self.on_worker = lambda node: None  # starts feeding it

    def of(self, role, *states):
        """The nodes of @role in one of @states (default: those that serve), by index."""
        with self.lock:
            found = [n for n in self.nodes.values()
                     if n.role == role and (n.state in states if states else n.alive)]
        return sorted(found, key=lambda n: n.index)

    def report(self):
        with self.lock:
            return [{"role": n.role, "index": n.index, "threads": n.threads,
                     "state": n.state if n.fed or n.state != "in" else "joining"}
                    for n in sorted(self.nodes.values(), key=lambda n: n.key)]

    # The members that are wanted.

    def on_members(self, members):
        """From the channel's thread."""
        listed = {(m.role, m.index): m for m in members.nodes}
        with self.lock:
            turned, self.suspended = self.suspended != members.suspend, members.suspend
            self.mode, self.slots = members.mode, members.slots
            known = list(self.nodes.values())
            new = [Node(m) for key, m in listed.items() if key not in self._seen]
            for node in new:
                self._seen.add(node.key)
                self.nodes[node.key] = node
        for node in known:
            if node.key not in listed:
                self.lost(node, "it is no member any more")
                with self.lock:
                    del self.nodes[node.key]
                continue
            node.member = listed[node.key]
            if node.member.leave:
                self.leave(node)
            self._set_threads(node)
        for node in new:
            self._links.add(node.role, node.index, node.member.host, node.member.control_port)
            self._set_threads(node)
            if node.member.leave:
                self.leave(node)
        if turned:  # changes of nodes call it where they happen
            self._changed()

    def _set_threads(self, node):
        if node.member.threads != node.asked:
            node.asked = node.member.threads
            self._links.set_threads(node.role, node.index, node.asked)

    # Events of nodes; from the links' thread.

    def _on_event(self, event):
        node = self.nodes.get((event.role, event.index))
        if not node:
            return
        node.threads = event.threads
        if event.kind == "ready":
            node.ready = True
            self.change()
        elif event.kind == "draining":
            self.leave(node)
        elif event.kind in ("lost", "released"):
            self.lost(node, event.reason)
        elif event.kind == "refused":
            log(f"{node}: {event.reason}")

    def lost(self, node, why):
        """Counts @node as lost, whatever state it was in; @why is for the log. From any thread;
        never blocks."""
        with self.lock:
            if node.state in ("lost", "released"):
                return
            node.state = "lost"
            self.lock.notify_all()
        self._links.remove(node.role, node.index)
        log(f"{node} is lost: {why}")
        threading.Thread(target=self._cut_off, args=(node,), daemon=True, name="tide-cut").start()
        self._changed()
        self.change()

    def _cut_off(self, node):
        """Ends the connections of this process and of the other nodes to a lost node. gRPC
        connects again, so this is repeated until TensorFlow's cluster is without the node: a call
        to a machine that is gone hangs."""
        place, pause = (node.member.host, node.member.port), CUT_S
        end = time.monotonic() + CUT_FOR_S
        with contextlib.suppress(OSError):  # no such name any more
            address = socket.getaddrinfo(node.member.host, 0)[0][4][0]
            while not self._is_taken(place) and (
                    time.monotonic() < end or node.key in self._in_tensorflow):
                disconnect(address, node.member.port)
                self._links.disconnect(address, node.member.port)
                time.sleep(pause)
                pause = min(2 * pause, RETRY_S)

    def _is_taken(self, place):
        """Whether a node that is not lost is at this address."""
        with self.lock:
            return any(n.state not in ("lost", "released") and place == (
                n.member.host, n.member.port) for n in self.nodes.values())

    def leave(self, node):
        """@node is to leave: a worker finishes its closure first, a server gives its variables
        away."""
        with self.lock:
            if node.leaving or node.state in ("lost", "released"):
                return
            node.leaving = True
            if node.state == "in":
                node.state = "draining"
            waits = node.state == "joining" and node not in self._adding
            self.lock.notify_all()
        log(f"{node} leaves")
        if waits:
            self.released(node)
        self._changed()

    def released(self, node):
        """Nothing of the training is on @node any more: it may end. Never blocks."""
        with self.lock:
            if node.state in ("lost", "released") or node.empty:
                return
            node.empty = True
            known = node.key in self._in_tensorflow
        if not known:
            self._release(node)
            return
        self.change()
        late = threading.Timer(RELEASE_S, self._release, [node])  # others may wait for its cores
        late.daemon = True
        late.start()

    def _release(self, node):
        with self.lock:
            if node.state in ("lost", "released"):
                return
            node.state = "released"
            self.lock.notify_all()
        self._links.release(node.role, node.index)
        log(f"{node} is released")
        self._changed()

    # TensorFlow's cluster.

    def connect(self, chief):
        """Waits for a parameter server and a worker; returns the first cluster's specification."""
        told = 0.0
        while True:
            with self.lock:
                ready = [n for n in self.nodes.values() if n.state == "joining" and n.ready]
                if {n.role for n in ready} == {"ps", "worker"}:
                    break
                if time.monotonic() - told > 10:
                    told = time.monotonic()
                    log("waiting for a parameter server and a worker")
                self.lock.wait(0.5)
        spec = {"chief": [chief]}
        for node in ready:
            spec.setdefault(node.role, {})[node.index] = node.member.address
        self._in_tensorflow = {n.key for n in ready}
        self._first = ready
        return tf.train.ClusterSpec(spec)

    def wait_server(self):
        """The parameter servers that take variables; waits for one if there is none."""
        with self.lock:
            while not (servers := self.of("ps", "in")):
                if not self._connected:
                    raise RuntimeError("the training is closed: it has no parameter servers")
                self.lock.wait(0.5)
        return servers

    def connected(self):
        """The first nodes serve, and others may join."""
        self._connected = True
        self._serve(self._first)
        self.change()

    def change(self):
        """Starts to add the nodes that are ready, and to remove those that are gone or are to
        end."""
        with self.lock:
            self.lock.notify_all()
            if not self._connected or self._changing:
                return
            now = time.monotonic()
            remove = {k for k in self._in_tensorflow if k not in self.nodes
                      or not self.nodes[k].alive or self.nodes[k].empty}
            batch = [n for n in self.nodes.values() if n.state == "joining" and n.ready
                     and not n.empty and n.not_before <= now]
            if not batch and not remove:
                return
            self._adding = batch
            self._changing = threading.Thread(target=self._change, args=(batch, remove),
                                              daemon=True, name="tide-change")
        self._changing.start()

    def _change(self, batch, remove):
        # One after the other: an addition that fails would leave TensorFlow with half a removal.
        if remove:
            self._remove(remove)
        if batch:
            self._add(batch)
        with self.lock:
            self._changing, self._adding = None, []
        self.change()

    def _tell_tensorflow(self, add, remove):
        try:
            private.update_cluster(add, remove)
        finally:
            self.updated = time.monotonic()  # before a new node gets its first call: the change cannot have met that

    def _remove(self, gone):
        try:
            self._tell_tensorflow({}, gone)
        except Exception as error:  # the next change removes them, too
            log("replicas that leave stay in TensorFlow's cluster until its next change: "
                f"{str(error).splitlines()[:1]}")
        with self.lock:
            self._in_tensorflow -= gone
            nodes = [self.nodes[k] for k in gone if k in self.nodes]
        for node in nodes:
            self._release(node)  # no effect on those that were lost

    def _add(self, batch):
        add = {n.key: n.member.address for n in batch}
        try:
            self._tell_tensorflow(add, ())
        except Exception as error:  # one that hangs or dies now is no reason to end this thread
            log(f"{', '.join(map(str, batch))} cannot join yet: {str(error).splitlines()[:1]}")
            for node in batch:
                node.not_before = time.monotonic() + RETRY_S
                if node.leaving:
                    self.released(node)
            threading.Timer(RETRY_S, self.change).start()
        else:
            with self.lock:
                self._in_tensorflow |= set(add)
            self._serve(batch)

    def _serve(self, nodes):
        for node in nodes:
            with self.lock:
                if node.state != "joining":
                    continue
                node.state = "draining" if node.leaving else "in"
                self.lock.notify_all()
            log(f"{node} joins")
            if node.role == "worker":
                self.on_worker(node)
                node.fed = True
        self._changed()

    def close(self, release):
        """Ends all links; with @release the nodes end as well."""
        with self.lock:
            nodes = list(self.nodes.values())
            self._connected = False
        if release:
            # Else TensorFlow, as this process ends, would ask nodes that have gone to forget
            # functions.
            try:
                private.update_cluster({}, self._in_tensorflow)
            except tf.errors.OpError:
                pass
            for node in nodes:
                self._release(node)
            end = time.monotonic() + RELEASE_S
            while time.monotonic() < end and self._links.states():
                time.sleep(0.01)
        self._links.close()
