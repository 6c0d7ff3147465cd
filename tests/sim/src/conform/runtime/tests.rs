//! The scripts on the model alone.

use std::collections::BTreeSet;

use super::*;
use crate::node::runtime::Flavor;

#[test]
fn there_are_enough_scripts_and_each_runs() {
    let all = scripts();
    assert!(all.len() >= 60, "{}", all.len());
    let names: BTreeSet<&str> = all.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "names are unique");
    let mut lines = 0;
    for script in &all {
        let output = run(script, "uid", &mut Model::new(Flavor::Containerd16, 1));
        assert_eq!(
            output,
            run(script, "uid", &mut Model::new(Flavor::Containerd16, 2)),
            "{}: the seed shows",
            script.name
        );
        lines += output.len();
    }
    assert!(lines > 500, "{lines}");
}

#[test]
fn results_tell_what_matters() {
    let all = scripts();
    let lines: BTreeSet<String> =
        all.iter().flat_map(|s| run(s, "uid", &mut Model::new(Flavor::Containerd16, 1))).collect();
    for part in [
        "after the grace",
        "before the grace",
        "Exited exit 7",
        "Exited exit 137",
        "NotFound",
        "exit 3",
        "cut",
    ] {
        assert!(lines.iter().any(|l| l.contains(part)), "{part}");
    }
}
