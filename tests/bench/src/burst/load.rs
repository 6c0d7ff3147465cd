//! Processor time and memory of pitstop's programs during the burst.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;

use crate::harness::processes::{Memory, cpu, forget_peak};
use crate::harness::programs::{self, Program};

/// The programs, each with its processor time at the start of the measurement.
pub(super) struct Before(Vec<(Program, Duration)>);

/// Resource use of one program during the measurement.
pub(super) struct Load {
    pub(super) program: Program,
    /// Processor time.
    pub(super) cpu: Duration,
    /// Peak resident memory, in KiB.
    pub(super) peak: u64,
}

impl Before {
    /// Starts the measurement.
    pub(super) async fn now(client: &Client) -> Result<Self> {
        let programs = programs::find(client).await?;
        let begun = programs.into_iter().map(|program| {
            forget_peak(program.pid)?;
            let used = cpu(program.pid)?;
            Ok((program, used))
        });
        begun.collect::<Result<_>>().map(Self)
    }

    /// Resource use since the start.
    pub(super) fn since(self) -> Result<Vec<Load>> {
        let ended = self.0.into_iter().map(|(program, before)| {
            let measured = || Ok::<_, anyhow::Error>((cpu(program.pid)?, Memory::of(program.pid)?));
            let (now, memory) = measured().with_context(|| format!("Pod {} ended meanwhile", program.pod))?;
            Ok(Load { cpu: now.saturating_sub(before), peak: memory.peak, program })
        });
        ended.collect()
    }
}

/// The largest peak of a component's processes, in KiB.
pub(super) fn peak(loads: &[Load], component: &str) -> u64 {
    loads
        .iter()
        .filter(|load| load.program.component == component)
        .map(|load| load.peak)
        .max()
        .unwrap_or_default()
}
