//! A flipped bit anywhere in what was written is found and reported; in the blank room behind it, it does no harm.

use crate::checker::record;
use crate::instance::options;
use apiserver_storage::{Expect, Key, LogStorage, Op, Prefix, RangeOptions, Storage, StorageError, Write};
use machinery_runtime::{Runtime, SimDisk, Simulation};
use std::path::PathBuf;
use std::sync::Arc;

/// Sixty writes, a checkpoint in the middle, a proper end; the files then.
async fn write_some(runtime: &Runtime) -> usize {
    let (storage, _) = LogStorage::open(runtime, options()).await.unwrap();
    for step in 0..60 {
        let key = Key::parse(&format!("/registry/pods/a/{}", step % 9)).unwrap();
        let op = Op::Put {
            record: record("n1", &format!("{step}.0|{}", "x".repeat(step * 7))),
            ttl: None,
        };
        storage
            .commit(vec![Write {
                key,
                expect: Expect::Any,
                op,
            }])
            .await
            .unwrap();
    }
    let page = storage
        .range(&Prefix::parse("/").unwrap(), &RangeOptions::default())
        .await
        .unwrap();
    storage.close().await;
    page.entries.len()
}

/// Whether someone is told: recovery refuses or reports, or the check of all files does.
async fn is_reported(runtime: &Runtime, objects: usize) -> Result<bool, String> {
    let (storage, report) = match LogStorage::open(runtime, options()).await {
        Ok(opened) => opened,
        Err(StorageError::Corrupt { .. } | StorageError::NewerFormat { .. }) => return Ok(true),
        Err(other) => return Err(format!("an unexpected error: {other}")),
    };
    let verified = storage.verify().await.map_err(|error| error.to_string())?;
    let page = storage
        .range(&Prefix::parse("/").unwrap(), &RangeOptions::default())
        .await;
    let page = page.map_err(|error| error.to_string())?;
    storage.close().await;
    if page.entries.len() != objects || page.revision.0 != 60 {
        return Err(format!(
            "{} objects at {}, report {report:?}",
            page.entries.len(),
            page.revision
        ));
    }
    Ok(!report.problems.is_empty() || !verified.is_empty())
}

/// A world of its own with one bit flipped after a proper end.
fn flip(path: PathBuf, bit: u64) -> Result<bool, String> {
    let simulation = Simulation::new(7);
    let (runtime, disk): (Runtime, Arc<SimDisk>) = (simulation.runtime(), simulation.disk());
    simulation.run(async move {
        let objects = write_some(&runtime).await;
        assert!(disk.flip_bit(&path, bit), "{} has no bit {bit}", path.display());
        is_reported(&runtime, objects).await
    })
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_reported() {
    let simulation = Simulation::new(7);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    simulation.run(async move { write_some(&runtime).await });
    let files: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|(path, length)| *length > 0 && path.extension().is_none_or(|ext| ext != "room"))
        .collect();
    assert!(
        files
            .iter()
            .any(|(path, _)| path.extension().is_some_and(|ext| ext == "ckpt")),
        "{files:?}"
    );
    assert!(files.len() > 3, "{files:?}");
    let every: u64 = 24_001;
    let mut flipped = 0;
    for (path, length) in files {
        let content = disk.read(&path).unwrap();
        let written = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let (written, bits) = (written as u64 * 8, length * 8);
        // The first and last bits one by one, the rest in strides that meet every kind of field.
        let edges = (0..600)
            .step_by(37)
            .chain(written.saturating_sub(600)..written)
            .step_by(29);
        for bit in edges
            .chain((0..bits).step_by(usize::try_from(every).unwrap()))
            .filter(|bit| *bit < bits)
        {
            flipped += 1;
            let reported = flip(path.clone(), bit);
            // Whatever is not `Ok` has lost something.
            assert!(
                reported == Ok(true) || (reported == Ok(false) && bit >= written),
                "bit {bit} of {}: {reported:?}",
                path.display()
            );
        }
    }
    println!("{flipped} bits flipped, each reported");
}
