//! Waiting for what must come to pass, with a bound.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout};

/// Bound of a wait for something that takes a few seconds on an idle machine.
pub const SHORT: Duration = Duration::from_mins(1);
/// Bound of a wait that includes a crash: a lease that must run out, a Pod that starts anew.
pub const LONG: Duration = Duration::from_secs(90);

const PERIOD: Duration = Duration::from_millis(100);
const PROBE: Duration = Duration::from_secs(10);

/// Asks until there is an answer. Errors count as none yet; the last one is told when time is up.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let error = match timeout(PROBE, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some(format!("no answer for {PROBE:?}")),
        };
        if start.elapsed() >= limit {
            bail!("waited {limit:?} for {what}{}", error.map(|e| format!(": {e}")).unwrap_or_default());
        }
        sleep(PERIOD).await;
    }
}
