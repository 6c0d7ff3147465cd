//! Pods with one container, in cgroups as a kubelet and a runtime make them.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use pitstop_api::logic::cgroup::{PERIOD, in_systemd_steps, linear_weight, quota, shares};
use pitstop_api::nodework::Bounds;
use pitstop_cri::ContainerId;
use pitstop_cri::v1::LinuxContainerResources;
use pitstop_daemon::resize::resources;
use pitstop_daemon_core::cgroup::{Paths, resolve};
use pitstop_daemon_core::resize::{Change, Driver, Goal, Present, Seen, Setting, Write, writes};

use crate::load::Load;
use crate::machine::{CONTROLLERS, Machine, ROOT, get, put};
use crate::runc;

/// How often it is looked whether a cgroup is empty, and the pause between.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(5);
/// The last digits are those of the Pod.
const UID: &str = "0eb8c2ee-2805-4222-b6b3-e81343890000";
/// The container's ID.
pub(crate) const ID: &str = "b7a04dfe7903adf2a6bea06ebdfe81fc59c2b443d9d9330a63ef21ac8e7defde";

/// The same, as the daemon has it.
pub(crate) fn id() -> Result<ContainerId> {
    Ok(ContainerId::parse(ID)?)
}

/// How cgroups are named, and who keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The kubelet and the runtime themselves.
    Cgroupfs,
    /// systemd.
    Systemd,
}

impl Naming {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Cgroupfs, Self::Systemd];

    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }

    /// What the runtime tells of a container of a Burstable Pod.
    fn cgroups_path(self, uid: &str) -> String {
        match self {
            Self::Cgroupfs => format!("/kubepods/burstable/pod{uid}/{ID}"),
            Self::Systemd => {
                format!("kubepods-burstable-pod{}.slice:cri-containerd:{ID}", uid.replace('-', "_"))
            }
        }
    }
}

/// A Pod that runs.
#[derive(Debug)]
pub(crate) struct Pod<'a> {
    machine: &'a Machine,
    /// UID.
    pub(crate) uid: String,
    /// What the runtime tells of where the container's cgroup is.
    pub(crate) cgroups_path: String,
    /// Paths of its cgroups.
    pub(crate) paths: Paths,
    /// The container's process.
    pub(crate) load: Load,
    /// What its runtime makes of shares.
    curved: bool,
}

/// What containers and Pods ask for and may use: millicores and bytes.
pub(crate) fn bounds(cpu_request: i64, cpu_limit: Option<i64>, memory_limit: Option<i64>) -> Bounds {
    Bounds { cpu_request, cpu_limit, memory_limit }
}

/// How many there were.
fn next() -> u32 {
    thread_local!(static COUNT: Cell<u32> = const { Cell::new(0) });
    COUNT.replace(COUNT.get() + 1)
}

impl<'a> Pod<'a> {
    /// One whose Pod's cgroup has no more than its container's.
    pub(crate) fn start(machine: &'a Machine, naming: Naming, of: Bounds) -> Result<Self> {
        Self::with(machine, naming, of, of, false)
    }

    /// One with these resources. `curved`: of a runtime whose weights lie on the curve.
    pub(crate) fn with(
        machine: &'a Machine,
        naming: Naming,
        container: Bounds,
        pod: Bounds,
        curved: bool,
    ) -> Result<Self> {
        let number = next().to_string();
        let uid = format!("{}{number}", UID.get(..UID.len() - number.len()).unwrap_or_default());
        let cgroups_path = naming.cgroups_path(&uid);
        let paths = resolve(&cgroups_path, &id()?, &uid).map_err(|why| anyhow!(why))?;
        make(&paths)?;
        // The kubelet's own: libcontainer writes what it is given into the Pod's cgroup.
        let file = |file: &str, text: &str| put(&format!("{ROOT}/{}/{file}", paths.pod), text);
        file("cpu.weight", &linear_weight(shares(pod.cpu_request)).to_string())?;
        let quota_of = |bounds: Bounds| bounds.cpu_limit.and_then(|limit| quota(limit, PERIOD));
        file("cpu.max", &format!("{} {PERIOD}", or_max(quota_of(pod))))?;
        file("memory.max", &or_max(pod.memory_limit))?;
        // And of no container that it makes, swap is used.
        let made = LinuxContainerResources {
            cpu_shares: shares(container.cpu_request),
            cpu_quota: quota_of(container).unwrap_or_default(),
            cpu_period: PERIOD,
            memory_limit_in_bytes: container.memory_limit.unwrap_or_default(),
            ..Default::default()
        };
        runc::update(&paths.container, &made, curved)?;
        put(&format!("{ROOT}/{}/memory.swap.max", paths.container), "0")?;
        let load = Load::start(&format!("{ROOT}/{}/cgroup.procs", paths.container))?;
        Ok(Self { machine, uid, cgroups_path, paths, load, curved })
    }

    /// Ends it, and takes its cgroups away.
    pub(crate) fn end(self) -> Result<()> {
        self.load.end()?;
        remove(&self.paths)
    }

    /// The path of a file of the container's cgroup.
    pub(crate) fn in_container(&self, file: &str) -> String {
        format!("{ROOT}/{}/{file}", self.paths.container)
    }

    /// The path of a file of the Pod's cgroup.
    pub(crate) fn in_pod(&self, file: &str) -> String {
        format!("{ROOT}/{}/{file}", self.paths.pod)
    }

    /// What the daemon sees.
    pub(crate) fn present(&self) -> Result<Present> {
        self.machine.cgroups.present(&self.paths, true).map_err(|why| anyhow!(why))
    }

    /// What the daemon sees in the container's cgroup and in the Pod's.
    pub(crate) fn both(&self) -> Result<(Seen, Seen)> {
        let present = self.present()?;
        present.container.zip(present.pod).context("a cgroup is missing")
    }

    /// What the daemon would write so that both have these.
    pub(crate) fn plan(&self, container: Bounds, pod: Bounds, written: bool) -> Result<Vec<Write>> {
        let (of_container, of_pod) = self.both()?;
        let change = |bounds, seen: &'_ Seen| Goal::of(bounds, &seen.cgroup);
        let pod = Change { present: &of_pod.cgroup, goal: change(&pod, &of_pod), written };
        let one = Change { present: &of_container.cgroup, goal: change(&container, &of_container), written };
        Ok(writes(Driver::of(&self.paths.pod), Some(pod), &[(&id()?, one)]))
    }

    /// Gives both these as the daemon does, and looks after each write that the container fits into its Pod. At the end
    /// nothing may be left to write.
    pub(crate) fn resize(&self, container: Bounds, pod: Bounds) -> Result<()> {
        let plan = self.plan(container, pod, false)?;
        for write in &plan {
            self.apply(write)?;
            let (inner, outer) = self.both()?;
            let fits = |inner: Option<i64>, outer: Option<i64>| {
                inner.is_none() || outer.is_none_or(|outer| inner <= Some(outer))
            };
            // systemd rounds up.
            let time = outer.cgroup.cpu_quota.map(|quota| in_systemd_steps(quota, PERIOD));
            if !fits(inner.cgroup.memory_limit, outer.cgroup.memory_limit)
                || !fits(inner.cgroup.cpu_quota, time)
            {
                bail!("after {write:?} of {plan:?}: {inner:?} does not fit into {outer:?}");
            }
        }
        match self.plan(container, pod, true)?.as_slice() {
            [] => Ok(()),
            left => bail!("after {plan:?} there is still to write: {left:?}"),
        }
    }

    /// One write, as the daemon and the runtime make it.
    pub(crate) fn apply(&self, write: &Write) -> Result<()> {
        match write {
            Write::Pod(setting) => self.write(*setting),
            Write::Reclaim { .. } => bail!("{write:?} is in no plan"),
            Write::Container { id, settings } => {
                if id.as_str() != ID {
                    bail!("{write:?} is for another container");
                }
                let counts_swap = self.machine.cgroups.counts_swap(&self.paths.pod);
                let mut asked = resources(settings, counts_swap, self.curved);
                // What stays in the end is systemd's.
                if Driver::of(&self.paths.pod) == Driver::Systemd && asked.cpu_quota > 0 {
                    asked.cpu_quota = in_systemd_steps(asked.cpu_quota, asked.cpu_period);
                }
                runc::update(&self.paths.container, &asked, self.curved)
            }
        }
    }

    /// A write of the daemon into the Pod's cgroup.
    pub(crate) fn write(&self, setting: Setting) -> Result<()> {
        let written = self.machine.cgroups.write(&self.paths.pod, setting);
        written.map_err(|failure| anyhow!("{failure:?}"))
    }
}

/// Makes the cgroups at these paths, with every controller on the way.
fn make(paths: &Paths) -> Result<()> {
    let mut group = ROOT.to_owned();
    for name in paths.pod.split('/') {
        group = format!("{group}/{name}");
        fs::create_dir_all(&group).with_context(|| format!("cannot make {group}"))?;
        put(&format!("{group}/cgroup.subtree_control"), CONTROLLERS)?;
    }
    let container = format!("{ROOT}/{}", paths.container);
    fs::create_dir(&container).with_context(|| format!("cannot make {container}"))
}

/// Takes the cgroups at these paths away, whose processes have ended.
pub(crate) fn remove(paths: &Paths) -> Result<()> {
    remove_one(&paths.container)?;
    remove_one(&paths.pod)
}

/// Takes one cgroup away, whose processes have ended.
pub(crate) fn remove_one(group: &str) -> Result<()> {
    let path = format!("{ROOT}/{group}");
    // An ended process leaves its cgroup a moment later.
    for _ in 0..TRIES {
        if get(&format!("{path}/cgroup.events"))?.contains("populated 0") {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    fs::remove_dir(&path).with_context(|| format!("cannot remove {path}"))
}

fn or_max(amount: Option<i64>) -> String {
    amount.map_or_else(|| "max".to_owned(), |amount| amount.to_string())
}
