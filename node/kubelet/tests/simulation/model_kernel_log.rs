//! A kernel's log in memory.

use async_trait::async_trait;
use machinery_runtime::Watched;
use node_sys::kernel_log::{KernelLog, KernelLogReader, KernelRecord};
use std::sync::Arc;

/// Records since boot; those of programs are `None`.
#[derive(Debug, Clone)]
pub(crate) struct ModelKernelLog(Arc<Watched<Vec<Option<KernelRecord>>>>);

impl Default for ModelKernelLog {
    fn default() -> Self {
        Self(Arc::new(Watched::new(Vec::new())))
    }
}

impl ModelKernelLog {
    /// The kernel writes these lines.
    pub(crate) fn write(&self, lines: &[String]) {
        self.0.change(|records| {
            for text in lines {
                let sequence = records.len() as u64;
                let text = text.clone();
                records.push(Some(KernelRecord { sequence, text }));
            }
            true
        });
    }
}

impl KernelLog for ModelKernelLog {
    fn open(&self) -> std::io::Result<Box<dyn KernelLogReader>> {
        Ok(Box::new(Reader {
            log: self.clone(),
            next: 0,
        }))
    }

    fn boot_id(&self) -> String {
        "boot".to_owned()
    }
}

#[derive(Debug)]
struct Reader {
    log: ModelKernelLog,
    next: usize,
}

#[async_trait]
impl KernelLogReader for Reader {
    async fn next(&mut self) -> std::io::Result<Option<KernelRecord>> {
        let next = self.next;
        self.next += 1;
        let records = self.log.0.wait_for(|records| records.len() > next).await;
        Ok(records[next].clone())
    }
}
