//! Numbers of Pods, and shares of them.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pitstop_api::rollout::Share;

/// Reads `2` or `25%`.
pub fn read(text: &str) -> Result<Share, String> {
    let value = match text.parse::<i32>() {
        Ok(number) => IntOrString::Int(number),
        Err(_) => IntOrString::String(text.to_owned()),
    };
    let share = Share(value);
    share.check().map(|()| share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_shares_are_read() {
        assert_eq!(read("2"), Ok(Share(IntOrString::Int(2))));
        assert_eq!(read("25%"), Ok(Share(IntOrString::String("25%".into()))));
        for text in ["0", "-1", "0%", "101%", "many", ""] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("many").unwrap_err(), "\"many\" is no share: write a number, or one of 1% to 100%");
    }
}
