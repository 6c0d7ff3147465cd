//! pitstop on a real Kubernetes: API server, kubelet and containerd.
#![cfg(test)]
#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod away;
mod certificates;
mod charted;
mod cli;
mod comes_back;
mod crash;
mod cri;
mod deadline;
mod deployed;
mod documented;
mod drain;
mod failover;
mod gates;
mod gone;
mod guard;
mod hardened;
mod hooks;
mod images;
mod killed;
mod kinds;
mod kruise;
mod mechanism;
mod midroll;
mod older;
mod pullers;
mod queue;
mod refused;
mod registry;
mod released;
mod resize;
mod restart;
mod rollouts;
mod selected;
mod unasked;
mod updates;
mod verify;
mod walked;
mod watched;
mod writes;
