//! `starling status`: how the run on this machine is doing.

mod page;
mod screen;

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use starling_node::credentials::ticket;
use starling_node::observe::status::Status;
use starling_node::store::data_dir::DataDirError;

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::StatusFlags;
use crate::output::Style;
use page::page;
use screen::Screen;

/// How often `--watch` looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn status(context: &Context, flags: &StatusFlags) -> Result<u8, CommandError> {
    let dir = context.load(flags.data_dir.values())?.data_dir()?;
    let mut status = read(&dir)?;
    let mut screen = (flags.watch && Style::choose(context.global.json) == Style::Terminal).then(Screen::new);
    show(context, screen.as_mut(), &status)?;
    while flags.watch && status.is_running() != Some(false) {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let next = read(&dir)?;
        if next != status || next.is_running() == Some(false) {
            show(context, screen.as_mut(), &next)?;
        }
        status = next;
    }
    Ok(EXIT_DONE)
}

fn read(dir: &Path) -> Result<Status, CommandError> {
    Status::read(dir)?.ok_or_else(|| DataDirError::NoStatus(dir.to_owned()).into())
}

fn show(context: &Context, screen: Option<&mut Screen>, status: &Status) -> Result<(), CommandError> {
    if let Some(screen) = screen {
        return screen.draw(&page(status)).map_err(CommandError::io("draw on the terminal"));
    }
    let value = || {
        let mut value = json!(status);
        if !context.global.show_ticket && ticket::holds_secret(&status.ticket) {
            value["ticket"] = json!(null);
        }
        value["running"] = json!(status.is_running());
        value["rows"] = json!(status.rows());
        value
    };
    print(context.global.json, value, || page(status))
}
