//! IDs of containers.

use std::fmt;
use std::str::FromStr;

/// Regular expression of a full ID, for schemas.
pub const PATTERN: &str = "^[0-9a-f]{64}$";

/// The full ID of one container: 64 hexadecimal digits in lower case, as containerd, CRI-O and cri-dockerd all make
/// them.
///
/// Runtimes accept a prefix of an ID. A value of this type cannot be a prefix, a UID or any other text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(String);

/// Why a text is no ID. Has the text's length only: IDs come from outside and may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdError {
    /// Not 64 hexadecimal digits in lower case.
    NotFull {
        /// Length of the text, in bytes.
        length: usize,
    },
    /// Not of the form `runtime://id`.
    NoRuntime,
}

impl ContainerId {
    /// Accepts what [`PATTERN`] matches.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let full = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if full { Ok(Self(text.to_owned())) } else { Err(IdError::NotFull { length: text.len() }) }
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Splits a container ID as a Pod's status writes it, `containerd://<id>` or `cri-o://<id>`, into the name of the
/// runtime, as in the answer to CRI's `Version`, and the ID.
pub fn split_reference(reference: &str) -> Result<(&str, ContainerId), IdError> {
    let (runtime, id) = reference.split_once("://").ok_or(IdError::NoRuntime)?;
    if runtime.is_empty() {
        return Err(IdError::NoRuntime);
    }
    Ok((runtime, ContainerId::parse(id)?))
}

impl FromStr for ContainerId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::parse(text)
    }
}

impl From<ContainerId> for String {
    fn from(id: ContainerId) -> Self {
        id.0
    }
}

impl PartialEq<ContainerId> for String {
    fn eq(&self, id: &ContainerId) -> bool {
        *self == id.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As a string, so that a search in printed text finds it.
impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFull { length } => {
                write!(f, "not a full ID: 64 hexadecimal digits (0-9, a-f) are expected, got {length} bytes")
            }
            Self::NoRuntime => {
                f.write_str("not of the form runtime://ID, as a Pod's status writes container IDs")
            }
        }
    }
}

impl std::error::Error for IdError {}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn only_full_ids() {
        assert_eq!(ContainerId::parse(ID).unwrap().as_str(), ID);
        assert_eq!(ID.parse::<ContainerId>().unwrap().to_string(), ID);
        let long = format!("{ID}0");
        let upper = ID.to_uppercase();
        let not_hex = ID.replace('f', "g");
        let two_bytes = ID.replace('f', "é");
        let newline = format!("{}\n", &ID[1..]);
        for bad in ["", "0", &ID[1..], &long, &upper, &not_hex, &two_bytes, &newline] {
            assert_eq!(ContainerId::parse(bad), Err(IdError::NotFull { length: bad.len() }), "{bad:?}");
        }
    }

    #[test]
    fn references_of_a_pod_status() {
        for runtime in ["containerd", "cri-o", "docker"] {
            let reference = format!("{runtime}://{ID}");
            assert_eq!(split_reference(&reference), Ok((runtime, ContainerId::parse(ID).unwrap())));
        }
        assert_eq!(split_reference(ID), Err(IdError::NoRuntime));
        assert_eq!(split_reference(&format!("://{ID}")), Err(IdError::NoRuntime));
        assert_eq!(split_reference(""), Err(IdError::NoRuntime));
        assert_eq!(split_reference("containerd://"), Err(IdError::NotFull { length: 0 }));
        assert_eq!(split_reference(&format!("a://b://{ID}")), Err(IdError::NotFull { length: 68 }));
    }
}
