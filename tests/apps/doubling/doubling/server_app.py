"""Sends each node the number of the round, and writes down who answered what, and how long it took."""

import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    while len(nodes := sorted(grid.get_node_ids())) < config["clients"]:
        time.sleep(0.1)
    rounds = []
    for number in range(1, config["rounds"] + 1):
        began = time.time()
        content = RecordDict({"number": ConfigRecord({"value": number})})
        messages = [Message(content, node, MessageType.QUERY, group_id=str(number)) for node in nodes]
        waiting, answers = set(grid.push_messages(messages)), {}
        while waiting and time.time() < began + 60:
            for reply in grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                if reply.has_content():
                    answer = reply.content["number"]
                    answers[str(answer["partition"])] = answer["value"]
            time.sleep(0.05)
        rounds.append({"answers": answers, "seconds": time.time() - began})
    Path(config["out"]).write_text(json.dumps({"nodes": nodes, "rounds": rounds}))
