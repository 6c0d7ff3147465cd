//! Scripts from seeds. Each has only one possible outcome: no result depends on a race.

use super::script::{Id, Op, Script, Shape};
use crate::node::runtime::State;
use crate::rng::Rng;

/// What the generator knows of a container.
struct Made {
    name: String,
    shape: Shape,
    state: State,
}

pub(super) fn script(seed: u64) -> Script {
    let mut rng = Rng::new(seed);
    let mut made: Vec<Made> = Vec::new();
    let mut ops = Vec::new();
    let steps = 8 + rng.below(8);
    for step in 0..steps {
        let pick = |rng: &mut Rng| usize::try_from(rng.below(made.len().max(1) as u64)).unwrap();
        if made.len() < 2 || (made.len() < 5 && rng.one_in(5)) {
            let shape = rng
                .pick(&[Shape::Polite, Shape::Polite, Shape::Stubborn, Shape::Job(0), Shape::Job(5)])
                .unwrap();
            let name = format!("c{step}");
            ops.push(Op::Create(name.clone(), shape, 0));
            made.push(Made { name, shape, state: State::Created });
            continue;
        }
        let at = pick(&mut rng);
        let one = &mut made[at];
        let id = match rng.below(4) {
            0 => Id::Prefix(one.name.clone(), 12 + usize::try_from(rng.below(40)).unwrap()),
            _ => Id::Of(one.name.clone()),
        };
        let job = matches!(one.shape, Shape::Job(_));
        match rng.below(12) {
            0..=2 => {
                ops.push(Op::Start(id));
                if one.state == State::Created {
                    one.state = State::Running;
                    if job {
                        ops.push(Op::Ended(Id::Of(one.name.clone())));
                        one.state = State::Exited;
                    }
                }
            }
            3..=5 => {
                let grace = match one.shape {
                    Shape::Stubborn => i64::try_from(rng.below(2)).unwrap(),
                    _ => rng.pick(&[0, 60]).unwrap(),
                };
                ops.push(Op::Stop(id, grace));
                if one.state == State::Running {
                    one.state = State::Exited;
                }
            }
            6 => ops.push(Op::Status(id)),
            7..=8 => {
                let script = rng
                    .pick(&["exit 0", "exit 9", "true", "false", "kill -9 $$", "sleep 0.1; exit 2"])
                    .unwrap();
                ops.push(Op::Exec(id, ["sh", "-c", script].map(str::to_owned).to_vec(), 30));
            }
            9 => ops.push(Op::List),
            10 => ops.push(Op::ListId(id)),
            _ => {
                ops.push(Op::Remove(id));
                ops.push(Op::Status(Id::Of(one.name.clone())));
                made.remove(at);
            }
        }
    }
    ops.push(Op::List);
    ops.extend(made.iter().map(|one| Op::Status(Id::Of(one.name.clone()))));
    Script { name: format!("seed {seed}"), ops, alone: false }
}
