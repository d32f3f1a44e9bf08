"""One run over two processes, each with a part of the devices and of the clients' state.

    python examples/two_processes.py

starts both on this machine. On two hosts, start one on each, with the address of the first:

    python examples/two_processes.py --coordinator first-host:12345 --process 0
    python examples/two_processes.py --coordinator first-host:12345 --process 1
"""

import argparse
import socket
import subprocess
import sys

import losac

PROCESSES = 2


def run(coordinator: str, process: int) -> None:
    """Join the other process, and simulate as on one device."""
    losac.distributed(coordinator, PROCESSES, process)
    data = losac.data.load("digits", clients=50, partition="sorted")
    task = losac.classification(losac.models.two_nn(64, 10), data)
    algorithm = losac.algorithms.scaffold(step_size=1e-3, local_steps=5, blocks=5)
    history = losac.simulate(task, algorithm, rounds=50, clients_per_round=10, eval_every=25)
    print(f"process {process}: loss {history.final('loss'):.6f}, accuracy {history.final('accuracy'):.4f}")


def main() -> None:
    """Run one process of the two, or start both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinator", help="host:port of the first process")
    parser.add_argument("--process", type=int, choices=range(PROCESSES))
    arguments = parser.parse_args()
    if arguments.process is not None:
        run(arguments.coordinator, arguments.process)
        return
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, __file__, "--coordinator", coordinator, "--process"]
    started = [subprocess.Popen([*command, str(p)]) for p in range(PROCESSES)]
    sys.exit(max(program.wait() for program in started))


if __name__ == "__main__":
    main()
