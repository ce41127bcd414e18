//! A flipped bit anywhere in what was written is found and reported; in the blank room behind it, it does no harm.

use crate::checker::record;
use crate::instance;
use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, OfflineState, Op, Prefix, Quota, RangeOptions, Storage,
    StorageError, Write,
};
use machinery_runtime::{Disk, OpenMode, Runtime, SimDisk, Simulation};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Options without a reserve, which is blank.
fn options() -> LogOptions {
    LogOptions {
        reserve_bytes: 0,
        quota: Quota::default(),
        ..instance::options()
    }
}

/// Sixty writes, a checkpoint in the middle, a proper end; the files then.
async fn write_some(runtime: &Runtime) -> usize {
    let (storage, _) = LogStorage::open(runtime, options()).await.unwrap();
    for step in 0..60 {
        let key = Key::parse(&format!("/registry/pods/a/{}", step % 9)).unwrap();
        let op = Op::Put {
            record: record(&key, "n1", &format!("{step}.0|{}", "x".repeat(step * 7))),
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

/// Reports whether the damage is reported: recovery refuses or reports it, or the check of all files does.
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

/// A world of its own that finds these files, one bit of one of them flipped.
fn flip(files: &[File], path: PathBuf, bit: u64, objects: usize) -> Result<bool, String> {
    let simulation = Simulation::new(7);
    let (runtime, disk): (Runtime, Arc<SimDisk>) = (simulation.runtime(), simulation.disk());
    put(&disk, files);
    simulation.run(async move {
        assert!(disk.flip_bit(&path, bit), "{} has no bit {bit}", path.display());
        is_reported(&runtime, objects).await
    })
}

/// A path and what is there.
type File = (PathBuf, Vec<u8>);

fn put(disk: &SimDisk, files: &[File]) {
    for (path, bytes) in files {
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(0, bytes).unwrap();
        file.sync_data().unwrap();
    }
    disk.sync_dir(&options().dir).unwrap();
}

/// The files after a proper end, and how many objects are in them.
fn written() -> (Vec<File>, usize) {
    let simulation = Simulation::new(7);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    let objects = simulation.run(async move { write_some(&runtime).await });
    let files = disk.files().into_iter();
    let files = files.map(|(path, _)| (path.clone(), disk.read(&path).unwrap()));
    (files.collect(), objects)
}

/// One bit in five of what a file header says, of its checksum and of the first batch's header or record, other ones in
/// each file; the last bits that were written; everything between, and the blank room behind, in strides that meet every
/// kind of field.
fn bits(file: u64, length: u64, written: u64) -> BTreeSet<u64> {
    const HEADER: u64 = 44 * 8;
    const SECTOR: u64 = 512 * 8;
    let mut bits: BTreeSet<u64> = (file % 5..HEADER).step_by(5).collect();
    bits.extend((HEADER..SECTOR - 32).step_by(397));
    bits.extend((SECTOR - 32 + file % 5..SECTOR + 48 * 8).step_by(5));
    bits.extend((SECTOR..written).step_by(997));
    bits.extend((written.saturating_sub(600)..written).step_by(7));
    bits.extend((0..length).step_by(24_001));
    bits.retain(|bit| *bit < length);
    bits
}

#[test]
fn log_flipped_bit_is_found_and_reported() {
    let (files, objects) = written();
    let mut kinds = BTreeSet::new();
    let mut flipped = 0;
    for (file, (path, content)) in (0..).zip(&files) {
        let Some(last) = content.iter().rposition(|byte| *byte != 0) else {
            continue;
        };
        kinds.insert(path.extension().map_or("ACTIVE", |ext| ext.to_str().unwrap()));
        let (written, length) = (last as u64 * 8 + 8, content.len() as u64 * 8);
        for bit in bits(file, length, written) {
            flipped += 1;
            let reported = flip(&files, path.clone(), bit, objects);
            // Whatever is not `Ok` has lost something.
            assert!(
                reported == Ok(true) || (reported == Ok(false) && bit >= written),
                "bit {bit} of {}: {reported:?}",
                path.display()
            );
        }
    }
    assert_eq!(kinds, BTreeSet::from(["ACTIVE", "ckpt", "seg"]));
    println!("{flipped} bits flipped, each reported");
    assert!(flipped > 2000, "{flipped}");
}

/// A removed or emptied file is missed, whichever it is, also where the power took what `ACTIVE` says of
/// batches.
#[test]
fn log_lost_file_is_found() {
    let (mut files, objects) = written();
    lost_file_is_found(&files, objects);
    forget_batch(&mut files);
    lost_file_is_found(&files, objects);
}

/// Makes `ACTIVE` name no batch.
fn forget_batch(files: &mut [File]) {
    let active = files.iter_mut().find(|(path, _)| path.ends_with("ACTIVE"));
    let sector = &mut active.unwrap().1;
    assert_ne!(sector[28..36], [0; 8]);
    sector[28..36].fill(0);
    let checksum = crc32c::crc32c(&sector[..508]);
    sector[508..].copy_from_slice(&checksum.to_le_bytes());
}

fn lost_file_is_found(files: &[File], objects: usize) {
    for lost in 0..files.len() {
        let path = &files[lost].0;
        if path.ends_with("LOCK") {
            continue;
        }
        for emptied in [false, true] {
            let mut left = files.to_vec();
            if emptied {
                left[lost].1.clear();
            } else {
                left.remove(lost);
            }
            let found = open_with(&left, objects);
            let checkpoint = path.extension().is_some_and(|ext| ext == "ckpt");
            assert!(
                found == Ok(true) || (checkpoint && found == Ok(false)),
                "{} emptied {emptied}: {found:?}",
                path.display()
            );
        }
    }
}

/// `ACTIVE` and the newest segment, each removed or emptied.
#[test]
fn log_lost_active_and_newest_segment_are_found() {
    let (files, objects) = written();
    let newest = newest_segment(&files);
    for emptied in [[false, false], [false, true], [true, false], [true, true]] {
        let mut left = files.clone();
        for (lost, emptied) in [newest.clone(), options().dir.join("ACTIVE")].iter().zip(emptied) {
            let at = left.iter().position(|(path, _)| path == lost).unwrap();
            match emptied {
                true => left[at].1.clear(),
                false => drop(left.remove(at)),
            }
        }
        assert_eq!(open_with(&left, objects), Ok(true), "emptied {emptied:?}");
    }
}

/// The newest segment ends before any of its batches, or is blank from there on.
#[test]
fn log_tail_cut_off_at_a_batch_is_found() {
    let (files, objects) = written();
    let newest = newest_segment(&files);
    let at = files.iter().position(|(path, _)| *path == newest).unwrap();
    let batches = files[at]
        .1
        .windows(4)
        .enumerate()
        .filter(|(_, window)| *window == b"kBat");
    let batches: Vec<usize> = batches.map(|(offset, _)| offset).collect();
    assert!(batches.len() > 2, "{batches:?}");
    for (batch, offset) in batches.iter().enumerate() {
        for blank in [false, true] {
            let mut left = files.clone();
            let content = &mut left[at].1;
            match blank {
                true => content[*offset..].fill(0),
                false => content.truncate(*offset),
            }
            let case = format!("batch {batch} of {}, blank {blank}", batches.len());
            assert_eq!(open_with(&left, objects), Ok(true), "{case}");
            assert_eq!(saved(&left), 60 - (batches.len() - batch) as u64, "{case}");
        }
    }
}

/// The last revision that `knarr storage backup --up-to-damage` saves.
fn saved(files: &[File]) -> u64 {
    let simulation = Simulation::new(7);
    let disk = simulation.disk();
    put(&disk, files);
    let saved = OfflineState::open_damaged(&*disk, &options().dir).unwrap();
    assert!(
        matches!(saved.ended, Some(StorageError::Corrupt { .. })),
        "{saved:?}"
    );
    saved.state.revision().0
}

fn newest_segment(files: &[File]) -> PathBuf {
    let paths = files.iter().map(|(path, _)| path);
    let segments = paths.filter(|path| path.extension().is_some_and(|ext| ext == "seg"));
    segments.max().unwrap().clone()
}

fn open_with(files: &[File], objects: usize) -> Result<bool, String> {
    let simulation = Simulation::new(7);
    let (runtime, disk) = (simulation.runtime(), simulation.disk());
    put(&disk, files);
    simulation.run(async move { is_reported(&runtime, objects).await })
}
