//! Waits with a time limit.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout};

/// Bound of a wait for something that takes a few seconds on an idle machine.
pub const SHORT: Duration = Duration::from_mins(1);
/// Bound of a wait that includes a crash: a lease that must run out, a Pod that starts anew.
pub const LONG: Duration = Duration::from_secs(90);

const PERIOD: Duration = Duration::from_millis(100);
const PROBE: Duration = Duration::from_secs(10);

/// Factor by which waits are longer on a slow machine.
static FACTOR: LazyLock<u32> = LazyLock::new(|| {
    let factor = std::env::var("PITSTOP_CLUSTER_PATIENCE").ok();
    factor.and_then(|factor| factor.parse().ok()).filter(|factor| (1..=1000).contains(factor)).unwrap_or(1)
});

/// Calls `probe` until it returns a value. Errors count as no value; at the limit, the last one is reported.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    let [limit, period, longest] = [limit, PERIOD, PROBE].map(|usual| usual.saturating_mul(*FACTOR));
    loop {
        let error = match timeout(longest, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some(format!("no answer for {longest:?}")),
        };
        if start.elapsed() >= limit {
            bail!("waited {limit:?} for {what}{}", error.map(|e| format!(": {e}")).unwrap_or_default());
        }
        sleep(period).await;
    }
}
