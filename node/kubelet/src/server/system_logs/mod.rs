//! `/logs/`: files of the machine's folder of logs, and of a program's log by query (upstream's `ServeLogs`, KEP 2258).
//!
//! [`config`] says whether there are any. A path is opened by [`files`], which follows links within that folder and that of the pods' logs,
//! and is sent by [`answers`]; a folder is a page of links. A [`query`] is read and checked, and [`journal`] answers it.
//!
//! Never: a file that a link outside of those folders leads to. Upstream's kubelet follows any, so that a pod which may write to the
//! folder shows each file of the machine to clients that may read logs.

mod answers;
pub(crate) mod config;
mod files;
mod journal;
mod places;
mod query;

use std::sync::Arc;

use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};

use super::query::{Query, decoded};
use super::response::{Body, text};
use crate::managers::ManagerContext;
pub use config::SystemLogsConfig;
use places::{Place, Places};
use query::LogQuery;

/// Answers under way.
#[derive(Debug, Default)]
pub(super) struct SystemLogs {
    places: Arc<Places>,
}

impl SystemLogs {
    /// Answers a user's request below `/logs`.
    pub(super) async fn answer(
        &self,
        context: &ManagerContext,
        user: &str,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Response<Body> {
        let config = &context.config.system_logs;
        if !config.is_served {
            return text(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.\n");
        }
        let Some(path) = uri.path().strip_prefix("/logs/") else {
            return moved("/logs/", uri);
        };
        let Some(place) = self.places.enter(user) else {
            return busy();
        };
        // In a path a plus is itself.
        let path = decoded(&path.replace('+', "%2B"));
        let query = match read_query(context, uri, &path).await {
            Err((status, words)) => return text(status, words + "\n"),
            Ok(query) => query,
        };
        match query {
            Some(LogQuery::Services(wanted)) => journal::answer(&context.runtime, config, wanted, place),
            Some(LogQuery::File(file)) => self.file(context, uri, headers, &file, place).await,
            None => self.file(context, uri, headers, &path, place).await,
        }
    }

    async fn file(
        &self,
        context: &ManagerContext,
        uri: &Uri,
        headers: &HeaderMap,
        path: &str,
        place: Place,
    ) -> Response<Body> {
        let config = &context.config;
        let inside = files::cleaned(path);
        let folders = vec![config.system_logs.folder.clone(), config.logs_folder()];
        let wanted = folders[0].join(&inside);
        let opened = context
            .runtime
            .blocking(move || files::open(&folders, &wanted))
            .await;
        match opened.unwrap_or_else(|ended| Err(std::io::Error::other(ended.to_string()))) {
            Err(error) => answers::failed(&error),
            Ok(files::Opened::Folder(_)) if !path.is_empty() && !path.ends_with('/') => {
                moved(&format!("{}/", last(&inside)), uri)
            }
            Ok(files::Opened::Folder(names)) => answers::folder(&context.runtime, &names, place),
            Ok(files::Opened::File(_)) if path.ends_with('/') => moved(&format!("../{}", last(&inside)), uri),
            Ok(files::Opened::File(file)) => answers::file(&context.runtime, file, headers, place).await,
        }
    }
}

/// The query of a request, where queries are answered.
async fn read_query(
    context: &ManagerContext,
    uri: &Uri,
    path: &str,
) -> Result<Option<LogQuery>, (StatusCode, String)> {
    let config = &context.config.system_logs;
    if !config.is_queried {
        return Ok(None);
    }
    let parameters = Query::parse(uri.query().unwrap_or_default());
    let found = query::read(&parameters).map_err(|words| (StatusCode::BAD_REQUEST, words))?;
    let Some(found) = found else { return Ok(None) };
    let refused = |words: String| (StatusCode::NOT_ACCEPTABLE, words);
    if !path.trim_matches('/').is_empty() {
        return Err(refused("path not allowed in query mode".to_owned()));
    }
    let folder = config.folder.clone();
    let checking = context.runtime.blocking(move || found.checked(&folder));
    let checked = checking.await.unwrap_or_else(|ended| Err(ended.to_string()));
    checked.map(Some).map_err(refused)
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// A redirection that keeps the query. The place is relative, so that it holds behind the API server as well.
fn moved(to: &str, uri: &Uri) -> Response<Body> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut answer = text(StatusCode::MOVED_PERMANENTLY, "");
    let place = format!("{}{query}", answers::path_of(to));
    if let Ok(place) = HeaderValue::from_str(&place) {
        answer.headers_mut().insert(LOCATION, place);
    }
    answer
}

fn busy() -> Response<Body> {
    let words = "too many logs are being read, please try again later\n";
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, words);
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}
