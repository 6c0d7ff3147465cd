//! What the burst costs pitstop's programs: processor time and memory.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;

use crate::harness::processes::{Memory, cpu, forget_peak};
use crate::harness::programs::{self, Program};

/// The programs, and the processor time that each had used when the measurement began.
pub(super) struct Before(Vec<(Program, Duration)>);

/// One program's share.
pub(super) struct Load {
    pub(super) program: Program,
    /// Processor time used meanwhile.
    pub(super) cpu: Duration,
    /// Largest resident memory meanwhile, in KiB.
    pub(super) peak: u64,
}

impl Before {
    /// Begins to measure.
    pub(super) async fn now(client: &Client) -> Result<Self> {
        let programs = programs::find(client).await?;
        let begun = programs.into_iter().map(|program| {
            forget_peak(program.pid)?;
            let used = cpu(program.pid)?;
            Ok((program, used))
        });
        begun.collect::<Result<_>>().map(Self)
    }

    /// What was used since.
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
