//! `/healthz`, `/livez`, `/readyz`: named checks, one by one at `/readyz/<name>`, all with `?verbose`.

use crate::startup;
use crate::state::ServerState;
use apiserver_endpoints::{Body, Query};
use http::{HeaderValue, Response, StatusCode};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

/// Fails while the disk is full or the quota of the store used up, on its own and not for the whole: a server that still reads and deletes must be reached,
/// or no client could make room.
const SPACE: &str = "storage-space";
/// Fails while a damaged file of the log is still needed, on its own as well: what is served comes from memory.
const INTEGRITY: &str = "storage-integrity";

/// Fails while there are stored values that no key decrypts, or that could not be written with the configuration in use, on its
/// own as well: everything else is served.
const ENCRYPTION: &str = "storage-encryption";

/// Fails while a KMS plugin is ill: then nothing that is encrypted by it can be written soon.
const KMS: &str = "kms-providers";

/// Fails while lines of the audit log cannot be written, on its own as well: requests go on, or are refused with a word of it.
const AUDIT: &str = "audit-log";

/// Upstream's hooks that are done here when everything has started.
const STARTED_HOOKS: [&str; 2] = [
    "generic-apiserver-start-informers",
    "start-apiserver-admission-initializer",
];
/// The hook after which every group that is served has its APIService.
const AUTOREGISTRATION: &str = "kube-apiserver-autoregistration";

/// The reason of what a server that starts has not done yet.
const NOT_FINISHED: &str = "not finished";

struct Check {
    name: Cow<'static, str>,
    result: Result<(), String>,
}

/// The answer, when the path is one of these.
pub(crate) async fn answer(core: &ServerState, path: &str, query: &str) -> Option<Response<Body>> {
    let mut parts = path.strip_prefix('/')?.splitn(2, '/');
    let root = parts
        .next()
        .filter(|root| ["healthz", "livez", "readyz"].contains(root))?;
    let checks = checks(core, root).await;
    let query = Query::parse(query);
    let excluded: Vec<&str> = query.all("exclude").collect();
    match parts.next() {
        None => {
            let verbose = query.get("verbose").is_some();
            record(core, root, &checks, &excluded);
            Some(all(root, checks, &excluded, verbose))
        }
        Some(name) => checks.into_iter().find(|check| check.name == name).map(one),
    }
}

/// Records results for `/metrics/slis`.
fn record(core: &ServerState, root: &str, checks: &[Check], excluded: &[&str]) {
    for check in checks.iter().filter(|check| !excluded.contains(&&*check.name)) {
        core.metrics
            .health_checks
            .checked(&check.name, root, check.result.is_ok());
    }
}

fn has_space(is_disk_full: bool, is_quota_used: bool) -> Result<(), String> {
    match (is_disk_full, is_quota_used) {
        (true, _) => Err("no space left for the data directory: only deletions are written".to_owned()),
        (_, true) => Err("the quota of the store is used up: delete objects to make room".to_owned()),
        (false, false) => Ok(()),
    }
}

fn is_encrypted(unopened: usize, is_behind: bool) -> Result<(), String> {
    match (unopened, is_behind) {
        (0, false) => Ok(()),
        (0, true) => Err("stored values are not written with the encryption configuration in use".to_owned()),
        // Any client may read this, and the names of objects are not for all: the log has the first.
        (unopened, _) => Err(format!("{unopened} stored values cannot be decrypted")),
    }
}

fn check(name: impl Into<Cow<'static, str>>, result: Result<(), String>) -> Check {
    Check {
        name: name.into(),
        result,
    }
}

/// The checks of an address, in the order in which they are answered.
async fn checks(core: &ServerState, root: &str) -> Vec<Check> {
    let is_ready = root == "readyz";
    let storage = core.registry.stored().current_revision().await;
    let storage = storage.map(|_| ()).map_err(|error| error.to_string());
    let mut checks = vec![
        check("ping", Ok(())),
        check("log", Ok(())),
        check("etcd", storage.clone()),
    ];
    if is_ready {
        checks.push(check("etcd-readiness", storage));
        checks.push(check("informer-sync", or_unfinished(has_started(core))));
    }
    checks.extend(of_steps(core));
    checks.extend(of_storage(core));
    // As upstream's: a server that is alive stays so without its plugins.
    if root != "livez" {
        let health = core.registry.stored().plugins_health();
        checks.extend(health.map(|health| check(KMS, health)));
    }
    if let Some(is_written) = core.audit.as_ref().and_then(|audit| audit.is_written()) {
        let failed = || Err("lines of the audit log cannot be written".to_owned());
        let written = if is_written { Ok(()) } else { failed() };
        checks.push(check(AUDIT, written));
    }
    if is_ready {
        checks.extend(of_readiness(core));
    }
    checks
}

/// Upstream's hooks after the start, done with the steps that do the same.
fn of_steps(core: &ServerState) -> Vec<Check> {
    let finished = core.finished_steps.load(Ordering::Acquire);
    let hook = |name: &str, is_done| check(format!("poststarthook/{name}"), or_unfinished(is_done));
    let own = startup::hooks().map(|(name, step)| hook(name, step < finished));
    // Done with the last step, whatever they are called upstream.
    let others = STARTED_HOOKS.iter().map(|name| hook(name, has_started(core)));
    let mut checks: Vec<Check> = own.chain(others).collect();
    let is_registered = startup::hooks().any(|(name, step)| name == AUTOREGISTRATION && step < finished);
    checks.push(check("autoregister-completion", or_unfinished(is_registered)));
    checks
}

/// State of the storage.
fn of_storage(core: &ServerState) -> Vec<Check> {
    let stored = core.registry.stored();
    let statistics = stored.statistics();
    let is_disk_full = statistics.as_ref().is_some_and(|own| own.full);
    let encrypted = is_encrypted(stored.unopened().count, stored.is_encryption_behind());
    let mut checks = vec![
        check(ENCRYPTION, encrypted),
        check(SPACE, has_space(is_disk_full, stored.is_over_quota())),
    ];
    if let Some(statistics) = statistics {
        let damage = statistics.damaged_files.first().cloned();
        checks.push(check(INTEGRITY, damage.map_or(Ok(()), Err)));
    }
    checks
}

/// Reasons for which a live server is not ready.
fn of_readiness(core: &ServerState) -> Vec<Check> {
    let is_to_stop = core.is_stopping() || core.shutdown_announced.load(Ordering::Acquire);
    let stopping = is_to_stop.then(|| "process is shutting down".to_owned());
    let mut checks = vec![
        check("poststarthook/start-knarr", or_unfinished(has_started(core))),
        check("shutdown", stopping.map_or(Ok(()), Err)),
    ];
    let components = core.runtime.components().all().into_iter();
    checks.extend(components.map(|(name, down)| {
        let name = format!("component/{}", name.replace(' ', "-"));
        check(name, down.map_or(Ok(()), Err))
    }));
    checks
}

fn has_started(core: &ServerState) -> bool {
    core.started.load(Ordering::Acquire)
}

fn or_unfinished(is_finished: bool) -> Result<(), String> {
    is_finished.then_some(()).ok_or_else(|| NOT_FINISHED.to_owned())
}

fn text(code: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

fn one(check: Check) -> Response<Body> {
    match check.result {
        Ok(()) => {
            let mut response = text(StatusCode::OK, "ok".to_owned());
            // Upstream says so for the whole list and for failures only.
            response.headers_mut().remove("x-content-type-options");
            response
        }
        Err(why) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {why}\n"),
        ),
    }
}

/// Names that no check has, quoted and sorted.
fn unknown(checks: &[Check], excluded: &[&str]) -> String {
    let is_unknown = |name: &&str| checks.iter().all(|check| check.name != **name);
    let unknown: BTreeSet<&str> = excluded.iter().copied().filter(is_unknown).collect();
    let quoted: Vec<String> = unknown.into_iter().map(|name| format!("{name:?}")).collect();
    quoted.join(",")
}

/// Checks that fail on their own paths alone: no restart and no other server mends what they report.
fn is_apart(name: &str) -> bool {
    [SPACE, INTEGRITY, ENCRYPTION, AUDIT].contains(&name)
}

/// One line for all that fail, as upstream's; polls of a server that starts are no news.
fn note_failures(root: &str, checks: &[Check], excluded: &[&str]) {
    let failed = checks.iter().filter(|check| !excluded.contains(&&*check.name));
    let failed: Vec<(&str, &str)> = failed
        .filter_map(|check| Some((&*check.name, check.result.as_ref().err()?.as_str())))
        .collect();
    let Some(unexpected) = failed.iter().position(|(_, why)| *why != NOT_FINISHED) else {
        if !failed.is_empty() {
            tracing::debug!(root, checks = ?failed, "health checks failed");
        }
        return;
    };
    let first = failed[unexpected].0;
    match failed.iter().all(|(name, _)| is_apart(name)) {
        true => tracing::warn!(checks = ?failed, "health checks fail on their own, {root} passes"),
        false => tracing::warn!(root, first, checks = ?failed, "health checks failed"),
    }
}

fn all(root: &str, checks: Vec<Check>, excluded: &[&str], verbose: bool) -> Response<Body> {
    let mut lines = String::new();
    let mut failed = false;
    note_failures(root, &checks, excluded);
    for check in &checks {
        // Writing to a string does not fail.
        let _ = match &check.result {
            _ if excluded.contains(&&*check.name) => writeln!(lines, "[+]{} excluded: ok", check.name),
            Ok(()) => writeln!(lines, "[+]{} ok", check.name),
            Err(_) => {
                failed |= !is_apart(&check.name);
                writeln!(lines, "[-]{} failed: reason withheld", check.name)
            }
        };
    }
    let unknown = unknown(&checks, excluded);
    if !unknown.is_empty() {
        let _ = writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {unknown}"
        );
    }
    match (failed, verbose) {
        (true, _) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{lines}{root} check failed\n"),
        ),
        (false, true) => text(StatusCode::OK, format!("{lines}{root} check passed\n")),
        (false, false) => text(StatusCode::OK, "ok".to_owned()),
    }
}
