#!/usr/bin/env python3
"""The collectives as HTTP clients call them: sessions on three gradwired of their own, one thread a rank.

usage: cluster_http.py FOLDER of gradwired"""
import concurrent.futures
import http.client
import json
import pathlib
import subprocess
import sys

RANKS = 3


class Rank:
    """A server and a session on it."""

    def __init__(self, folder, number):
        self.server = subprocess.Popen([folder / "gradwired", "--rpc", "off", "--http", "127.0.0.1:0", "--probe", "off",
                                        "--peer", "127.0.0.1:0", "--threads", "1", "--log-level", "error"],
                                       stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.server.stdout.readline())
        self.number, self.at, self.peer = number, ready["http"], ready["peer"]
        self.session = "/v1/sessions/" + self.ask("POST", "/v1/sessions", {})[1]["id"]

    def ask(self, method, path, body=None):
        line = http.client.HTTPConnection(self.at, timeout=60)
        line.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = line.getresponse()
        text = answer.read()
        line.close()
        return answer.status, json.loads(text) if text else None

    def join(self, meeting):
        return self.ask("PUT", self.session + "/groups/g",
                        {"backend": "gloo", "init_method": f"tcp://{meeting}", "world_size": RANKS, "rank": self.number,
                         "timeout_seconds": 30})

    def run(self, operator, inputs, names, fetch, out=None, **attrs):
        """The values of what is fetched, or the error's code and message."""
        program = {"inputs": {k: {"data": v, "dtype": "int64"} for k, v in inputs.items()},
                   "ops": [{"op": operator, "in": names, "attrs": {"group": "g", **attrs}}], "fetch": fetch}
        if out:
            program["ops"][0]["out"] = out
        status, answer = self.ask("POST", self.session + "/run", program)
        if status != 200:
            return answer["error"]["code"], answer["error"]["message"]
        return [answer["tensors"][name]["data"] for name in fetch]


def everywhere(ranks, call):
    """What call(rank) gives for each, all at once."""
    with concurrent.futures.ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(call, ranks))


def must(got, wanted, what):
    if got != wanted:
        sys.exit(f"{what}: {got}, not {wanted}")


def collectives(ranks):
    own = [[r + 1, 10 * r] for r in range(RANKS)]
    folds = {"sum": [6, 30], "product": [6, 0], "min": [1, 0], "max": [3, 20], "band": [0, 0], "bor": [3, 30], "bxor": [0, 30],
             "avg": [2, 10]}
    for op, value in folds.items():
        must(everywhere(ranks, lambda r: r.run("all_reduce", {"x": own[r.number]}, ["x"], ["x"], op=op)), [[value]] * RANKS,
             "all_reduce " + op)
    must(everywhere(ranks, lambda r: r.run("reduce", {"x": own[r.number]}, ["x"], ["x"], dst=1)),
         [[own[0]], [[6, 30]], [own[2]]], "reduce")
    must(everywhere(ranks, lambda r: r.run("broadcast", {"x": own[r.number]}, ["x"], ["x"], src=2)), [[own[2]]] * RANKS,
         "broadcast")
    parts = {"a": [1, 1], "b": [2, 2], "c": [3, 3]}
    must(everywhere(ranks, lambda r: r.run("reduce_scatter", {"x": [0, 0], **parts}, ["x", list(parts)], ["x"])),
         [[[3 * (r + 1)] * 2] for r in range(RANKS)], "reduce_scatter")
    must(everywhere(ranks, lambda r: r.run("scatter", {"x": [0, 0], **parts}, ["x", list(parts)], ["x"], src=0)
                    if r.number == 0 else r.run("scatter", {"x": [0, 0]}, ["x"], ["x"], src=0)),
         [[[r + 1] * 2] for r in range(RANKS)], "scatter")
    must(everywhere(ranks, lambda r: r.run("all_gather", {"x": own[r.number]}, ["x"], ["p", "q", "r"], ["p", "q", "r"])),
         [own] * RANKS, "all_gather")
    must(everywhere(ranks, lambda r: r.run("gather", {"x": own[r.number]}, ["x"], ["p", "q", "r"], ["p", "q", "r"], dst=1)
                    if r.number == 1 else r.run("gather", {"x": own[r.number]}, ["x"], ["x"], dst=1)),
         [[own[0]], own, [own[2]]], "gather")
    must(everywhere(ranks, lambda r: r.run("send", {"x": own[0]}, ["x"], ["x"], dst=2) if r.number == 0 else
                    r.run("recv", {"x": [0, 0]}, ["x"], ["x"], src=0) if r.number == 2 else None)[2], [own[0]], "recv")


def mistakes(ranks):
    said = everywhere(ranks, lambda r: r.run("all_reduce", {"x": [7] * (3 if r.number == 1 else 2)}, ["x"], ["x"]))
    must(said, [said[0]] * RANKS, "what the ranks hear of a mismatch")
    must(said[0][0], "group_mismatch", "a mismatch")
    if "ranks 0, 2 have int64 of 2 elements, rank 1 has int64 of 3 elements" not in said[0][1]:
        sys.exit(f"the mismatch is not named: {said[0][1]}")
    collectives(ranks)  # the group goes on
    ranks[1].server.kill()
    for code, message in everywhere([ranks[0], ranks[2]], lambda r: r.run("all_reduce", {"x": [1]}, ["x"], ["x"])):
        must(code, "unavailable", "a group without rank 1")
        must("rank 1" in message, True, message)
    must([r.ask("DELETE", r.session + "/groups/g")[0] for r in (ranks[0], ranks[2])], [204, 204], "leaving")
    must([r.ask("DELETE", r.session)[0] for r in (ranks[0], ranks[2])], [204, 204], "closing")


folder, ranks = pathlib.Path(sys.argv[1]), []
try:
    for n in range(RANKS):
        ranks.append(Rank(folder, n))
    joined = everywhere(ranks, lambda r: r.join(ranks[0].peer))
    must([(s, a.get("rank"), a.get("world_size")) for s, a in joined], [(201, r, RANKS) for r in range(RANKS)], "joining")
    collectives(ranks)
    mistakes(ranks)
finally:
    for r in ranks:
        r.server.terminate()
    ended = [r.server.wait() for r in ranks]
must(ended, [0, -9, 0], "how the servers end")
