//! `image`: time that pitstop adds to an image update of a running Pod, and outage that it avoids.
//!
//! Four sets of Pods take turns. Two are updated by a `PodImageUpdate`, two by a bare patch of the Pod. One set of each
//! finds the image on the node; the other pulls it from a registry that answers late. With a bare patch the kubelet
//! stops the old container and then pulls, so the outage includes the pull. Two further sets get an image whose
//! container fails at once, and roll back: by the update itself, or by a patch sent as soon as the failure is seen.

mod measure;

use anyhow::{Context as _, Result};
use pitstop_e2e::registry::{Failing, Faults};
use pitstop_e2e::{cluster::Cluster as Lab, images};

use self::measure::{Bench, Updated};
use crate::harness::cluster::Cluster;
use crate::harness::figures::{Samples, ratio, table};
use crate::harness::pods::Ns;
use crate::harness::tape::Tape;
use crate::harness::{BoundCheck, say};

/// Bound: time from create to end, divided by that from a bare patch to the new container being ready.
const WHOLE: f64 = 1.5;
/// Bound: outage with a late registry, divided by that of a bare patch with the image on the node.
const GAP: f64 = 1.3;
/// Bound: time from the failure until the old image is ready again, divided by that of a bare patch.
const BACK: f64 = 2.0;
/// Bound: API writes of pitstop for an update.
const WRITES: usize = 8;

/// Delay of the registry's answers, in milliseconds.
const LATE: u64 = 2000;
/// Rounds whose Pods run at a time.
const ROUND: usize = 3;
const SETS: [&str; 6] = ["late-update", "update", "patch", "late-patch", "back-update", "back-patch"];

/// Measurements, each with its own set of Pods.
#[derive(Default)]
struct Measured {
    late_update: Vec<Updated>,
    update: Vec<Updated>,
    patch: Vec<Updated>,
    late_patch: Vec<Updated>,
    /// Milliseconds from the failure until the old image is ready again.
    back_update: Vec<f64>,
    back_patch: Vec<f64>,
}

/// The benchmark.
pub(crate) async fn run(pods: usize) -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let lab = Lab::connect().await?;
    lab.install_with(&["image-update"])?;
    let measured =
        Ns::within(&cluster.client, "image", async |ns| measure(&cluster, &lab, ns, pods).await).await;
    lab.install()?;
    Ok(report(&measured?))
}

async fn measure(cluster: &Cluster, lab: &Lab, ns: &Ns, pods: usize) -> Result<Measured> {
    images::opt_in(lab, &ns.namespace)?;
    let names: Vec<[String; 6]> = (0..pods).map(|i| SETS.map(|set| format!("{set}-{i}"))).collect();
    say(format!("updating {pods} Pods of each set in namespace {}", ns.namespace));
    let mut bench = Bench {
        ns,
        pods: Tape::start(ns.api()).await?,
        updates: Tape::start(ns.api()).await?,
        audit_log: cluster.audit_log(),
        done: 0,
    };
    let mut measured = Measured::default();
    for (at, [late_update, update, patch, late_patch, back_update, back_patch]) in names.iter().enumerate() {
        // Few Pods at a time keep the machine's load low.
        if at % ROUND == 0 {
            ns.clear().await?;
            ns.start(&names.iter().skip(at).take(ROUND).cloned().collect::<Vec<_>>().concat()).await?;
        }
        let of = |pod: &str| format!("Pod {pod}");
        bench.forget(lab).await?;
        let late = Failing::with(lab, &Faults { delay_milliseconds: LATE, ..Faults::default() })?;
        measured.late_update.push(bench.by_update(late_update).await.with_context(|| of(late_update))?);
        drop(late);
        // The node has the image now.
        measured.update.push(bench.by_update(update).await.with_context(|| of(update))?);
        measured.patch.push(bench.by_patch(patch).await.with_context(|| of(patch))?);
        bench.forget(lab).await?;
        let late = Failing::with(lab, &Faults { delay_milliseconds: LATE, ..Faults::default() })?;
        measured.late_patch.push(bench.by_patch(late_patch).await.with_context(|| of(late_patch))?);
        drop(late);
        let back = bench.back_by_update(back_update).await.with_context(|| of(back_update))?;
        measured.back_update.push(back);
        measured.back_patch.push(bench.back_by_patch(back_patch).await.with_context(|| of(back_patch))?);
        if (at + 1) % ROUND == 0 {
            say(format!("{} of {pods} are done", at + 1));
        }
    }
    Ok(measured)
}

fn report(measured: &Measured) -> BoundCheck {
    let Measured { late_update, update, patch, late_patch, back_update, back_patch } = measured;
    let samples = |set: &[Updated], of: fn(&Updated) -> f64| set.iter().map(of).collect::<Samples>();
    let gap = |set: &[Updated]| samples(set, |m| m.ready - m.gone);
    let whole = samples(update, |m| m.over);
    let floor = samples(patch, |m| m.ready);
    let back = |set: &[f64]| set.iter().copied().collect::<Samples>();
    let (back_update, back_patch) = (back(back_update), back(back_patch));
    let row = |name: &str, samples: &Samples| {
        let [median, min, max, count] = samples.cells();
        [name.to_owned(), median, min, max, count]
    };
    let rows = [
        row("PodImageUpdate, image there: create → Complete", &whole),
        row("bare patch, image there: patch → new container Ready (the floor)", &floor),
        row("PodImageUpdate, image there: old process gone → new container Ready", &gap(update)),
        row("bare patch, image there: old process gone → new container Ready", &gap(patch)),
        row("PodImageUpdate, registry late: old process gone → new container Ready", &gap(late_update)),
        row("bare patch, registry late: old process gone → new container Ready", &gap(late_patch)),
        row("PodImageUpdate, registry late: create → Complete", &samples(late_update, |m| m.over)),
        row("PodImageUpdate, image fails: failure seen → old image Ready again", &back_update),
        row("bare patch back, sent when the failure is seen: the same", &back_patch),
    ];
    println!("{}\n", table(["milliseconds", "median", "min", "max", "Pods"], &rows));
    let mut kinds: std::collections::BTreeMap<&str, Vec<usize>> = std::collections::BTreeMap::new();
    for (what, count) in update.iter().chain(late_update).flat_map(|m| &m.writes.counts) {
        kinds.entry(what).or_default().push(count.all);
    }
    let rows: Vec<_> = kinds
        .into_iter()
        .map(|(what, counts)| {
            let most = counts.iter().max().copied().unwrap_or_default();
            [what.to_owned(), counts.iter().sum::<usize>().to_string(), most.to_string()]
        })
        .collect();
    println!("{}\n", table(["API writes", "number", "most for one PodImageUpdate"], &rows));

    let most = update.iter().chain(late_update).map(|m| m.writes.total()).max().unwrap_or_default();
    let whole = ratio(whole.median(), floor.median());
    let gate = ratio(gap(late_update).median(), gap(patch).median());
    let bare = ratio(gap(late_patch).median(), gap(patch).median());
    let back = ratio(back_update.median(), back_patch.median());
    println!(
        "create→Complete={whole:.2} gap with a late registry={gate:.2} (by a bare patch {bare:.2}) way back={back:.2} \
         writes/update={most} (bounds {WHOLE}/{GAP}/none/{BACK}/{WRITES})"
    );
    let measured_all =
        !update.is_empty() && [late_update, patch, late_patch].iter().all(|s| s.len() == update.len());
    BoundCheck::of(measured_all && whole <= WHOLE && gate <= GAP && back <= BACK && most <= WRITES)
}
