"""Doubles the number, and counts its calls in a file of its own."""

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    calls = Path(context.node_config["state-dir"]) / "calls"
    calls.write_text(str(int(calls.read_text()) + 1 if calls.exists() else 1))
    value = 2 * message.content["number"]["value"]
    answer = ConfigRecord({"value": value, "partition": context.node_config["partition-id"]})
    return Message(RecordDict({"number": answer}), reply_to=message)
