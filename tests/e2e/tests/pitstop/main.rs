//! pitstop on a real Kubernetes: API server, kubelet and containerd.
#![cfg(test)]

mod certificates;
mod crash;
mod cri;
mod deadline;
mod deployed;
mod drain;
mod failover;
mod gates;
mod gone;
mod guard;
mod hardened;
mod hooks;
mod kruise;
mod mechanism;
mod queue;
mod refused;
mod resize;
mod restart;
mod unasked;
mod verify;
mod writes;
