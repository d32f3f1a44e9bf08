#!/usr/bin/env bash
# A Slurm of two nodes on this machine alone, to try `--on slurm`: needs root and Debian's packages slurm-wlm and munge.
#   . benchmarks/slurm_here.sh start     # sets SLURM_CONF; the controller and both nodes listen on loopback only
#   losac compare losac fedavg --on slurm --slurm partition=short,mem=1G --jobs 2
#   . benchmarks/slurm_here.sh lose two  # kills a node with all that runs on it, as a power cut would
#   . benchmarks/slurm_here.sh stop      # ends what was started, by its process ids
HERE=${LOSAC_SLURM_HERE:-${XDG_RUNTIME_DIR:-/var/tmp}/losac-slurm}
export SLURM_CONF=$HERE/slurm.conf

slurm_start() {
  local memory=$(($(awk '/^MemTotal/ {print $2}' /proc/meminfo) / 2500)) node
  mkdir -p "$HERE"/{munge,state,one,two} && chmod 755 "$HERE" && chmod 700 "$HERE/munge"
  dd if=/dev/urandom of="$HERE/munge/key" bs=128 count=1 status=none && chmod 400 "$HERE/munge/key"
  munged --force --key-file="$HERE/munge/key" --socket="$HERE/munge.socket" --pid-file="$HERE/munged.pid" \
    --log-file="$HERE/munged.log" --seed-file="$HERE/munge/seed"
  cat >"$SLURM_CONF" <<CONF
ClusterName=here
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$HERE/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort=16817
SlurmctldPidFile=$HERE/slurmctld.pid
SlurmctldLogFile=$HERE/slurmctld.log
SlurmdPidFile=$HERE/slurmd-%n.pid
SlurmdLogFile=$HERE/slurmd-%n.log
SlurmdSpoolDir=$HERE/spool-%n
StateSaveLocation=$HERE/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
InactiveLimit=0
KillWait=2
NodeName=one NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=16818 CPUs=1 RealMemory=$memory
NodeName=two NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=16819 CPUs=1 RealMemory=$memory
PartitionName=short Nodes=one,two Default=YES State=UP MaxTime=INFINITE OverSubscribe=NO
CONF
  echo "CgroupPlugin=cgroup/v1" >"$HERE/cgroup.conf"
  slurmctld -c -f "$SLURM_CONF" && for node in one two; do slurmd -c -N "$node" -f "$SLURM_CONF"; done
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 1
  done
  sinfo
}

slurm_lose() {
  local job step
  kill -9 "$(cat "$HERE/slurmd-$1.pid")"
  for job in $(squeue --noheader --nodelist="$1" --format=%A); do
    for step in $(pgrep -f "slurmstepd: \\[$job\\."); do
      kill -9 $(pgrep -P "$step") "$step"
    done
  done
}

slurm_stop() {
  local file
  for file in "$HERE"/slurmd-*.pid "$HERE/slurmctld.pid" "$HERE/munged.pid"; do
    [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null
  done
  unset SLURM_CONF
}

"slurm_${1:?start, lose or stop}" "${2:-}"
