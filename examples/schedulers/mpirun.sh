#!/bin/sh
# Starts a rank for each slot of a host file with Open MPI, which connects to hosts by ssh.
#   mpirun.sh HOSTFILE [ARGUMENTS OF tandem train]
# A line of HOSTFILE is "HOST slots=4". Each host needs tandem in the PATH of mpirun.
set -eu
hostfile=$1
shift
# The ranks communicate over MPI, so they need neither an address nor a token.
exec mpirun --hostfile "$hostfile" tandem train "$@" --backend mpi
