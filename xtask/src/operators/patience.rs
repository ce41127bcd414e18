//! Waiting for others' programs.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time within which an expected answer must be there.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks again until nothing differs.
#[expect(
    clippy::disallowed_methods,
    reason = "a tool waits for others' programs by the wall clock"
)]
pub(super) fn poll(mut difference: impl FnMut() -> Result<Option<String>>) -> Result<()> {
    let begun = Instant::now();
    while let Some(seen) = difference()? {
        if begun.elapsed() > PATIENCE {
            bail!("after {} s the answer is {seen:?}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}
