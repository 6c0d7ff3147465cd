//! What containerd and runc, from 1.1 on, write into a container's cgroup on v2 for what the daemon asks of a runtime
//! (runc's `libcontainer/cgroups/fs2`).

use anyhow::{Result, bail};
use pitstop_api::logic::cgroup::{curved_weight, linear_weight};
use pitstop_cri::v1::LinuxContainerResources;

use crate::machine::{ROOT, put};

/// `UpdateContainerResources` for a cgroup. `curved`: runc 1.3.2 and later.
pub(crate) fn update(group: &str, resources: &LinuxContainerResources, curved: bool) -> Result<()> {
    let write = |file: &str, text: &str| put(&format!("{ROOT}/{group}/{file}"), text);
    let LinuxContainerResources { cpu_shares, cpu_quota, cpu_period, memory_limit_in_bytes, .. } = *resources;
    if *resources
        != (LinuxContainerResources {
            cpu_shares,
            cpu_quota,
            cpu_period,
            memory_limit_in_bytes,
            ..Default::default()
        })
    {
        bail!("the daemon asks for more than is known here: {resources:?}");
    }
    if cpu_shares != 0 {
        let weight = if curved { curved_weight(cpu_shares) } else { linear_weight(cpu_shares) };
        write("cpu.weight", &weight.to_string())?;
    }
    if cpu_quota != 0 || cpu_period != 0 {
        let quota = if cpu_quota > 0 { cpu_quota.to_string() } else { "max".to_owned() };
        let period = if cpu_period == 0 { 100_000 } else { cpu_period };
        write("cpu.max", &format!("{quota} {period}"))?;
    }
    match memory_limit_in_bytes {
        0 => {}
        // Whoever lifts the one limit without a word about the other means both.
        -1 => write("memory.swap.max", "max")?,
        // containerd sets both together to as much as memory alone.
        _ => write("memory.swap.max", "0")?,
    }
    if memory_limit_in_bytes != 0 {
        let limit = match memory_limit_in_bytes {
            -1 => "max".to_owned(),
            bytes => bytes.to_string(),
        };
        write("memory.max", &limit)?;
    }
    Ok(())
}
