//! A policy must be seen to deny before the right that it narrows is used: the right alone would allow more ([ADR
//! 6](../../../../docs/adr/0006-see-the-policy-deny.md)).

use pitstop_api::logic::answer::{Answer, Class, Failure};

/// A policy that must be seen to deny before the right that it narrows is used.
pub(super) struct Policy {
    /// Its name, and that of its binding.
    pub(super) name: &'static str,
    /// The component that contains it.
    pub(super) component: &'static str,
    /// What the API server says if the right is missing.
    pub(super) refusal: &'static str,
    /// What pitstop says in that case.
    pub(super) right: &'static str,
    /// What pitstop does not do without the policy.
    pub(super) without: &'static str,
}

/// Judges the answer to a forbidden form: succeeds if the policy is in force, or says why nothing is done.
pub(super) fn denied(answer: Answer, policy: &Policy) -> Result<(), Failure> {
    let Policy { name, component, refusal, right, without } = policy;
    let by_the_policy = format!("ValidatingAdmissionPolicy '{name}'");
    match answer {
        Answer::Failed(failure) if matches!(failure.class, Class::Invalid | Class::Fatal) => {
            if failure.message.contains(&by_the_policy) {
                Ok(())
            } else if failure.message.contains(refusal) {
                Err(Failure { message: format!("{right}: {}", failure.message), ..failure })
            } else {
                Err(failure)
            }
        }
        Answer::Failed(failure) => Err(failure),
        Answer::Body(_) => {
            let text = format!(
                "the ValidatingAdmissionPolicy {name} is not in force, and {without} without it: apply the \
                 component {component}"
            );
            Err(Failure::of_code(422, text))
        }
    }
}
