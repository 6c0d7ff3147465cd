//! pitstop's client of the container runtime: CRI `runtime.v1` over a unix socket.
//!
//! ```no_run
//! # async fn example() -> Result<(), pitstop_cri::Error> {
//! use pitstop_cri::{Deadlines, connect, v1};
//!
//! let runtime = connect("/run/containerd/containerd.sock".as_ref(), Deadlines::default())?;
//! let version = runtime.version().await?;
//! let containers = runtime.list_containers(v1::ContainerFilter::default()).await?;
//! println!("{} runs {} containers", version.runtime_name, containers.len());
//! # Ok(())
//! # }
//! ```
//!
//! - [`Runtime`] has one method for every call that pitstop may make, and no more: what is not in
//!   `proto/cri.proto` cannot be called.
//! - Every call ends by a deadline ([`Deadlines`]), every answer is bounded in size, every failure is an
//!   [`Error`] that names call and socket and whose [`Class`] says what to do.
//! - [`ContainerId`] and [`SandboxId`] are full IDs by construction. Runtimes accept a *prefix* of an ID
//!   wherever they take one, so a short ID could name another container.
//! - [`keys`] names the labels and annotations by which the kubelet says whose container it is.
//!
//! Only this crate knows tonic. It makes no decisions: no retries, no waiting.

mod client;
mod deadlines;
mod error;
mod ext;
mod id;
pub mod keys;

pub use client::{EXEC_ANSWER_LIMIT, LIST_ANSWER_LIMIT, Runtime, connect};
pub use deadlines::Deadlines;
pub use error::{Call, Class, Error};
pub use id::SandboxId;
pub use pitstop_api::id::{ContainerId, IdError, split_reference};

/// Messages of CRI `runtime.v1`, generated from `proto/cri.proto`, whose comments they carry.
pub mod v1 {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        reason = "generated code; its documentation is the comments of the proto file"
    )]
    include!("gen/runtime.v1.rs");
}
