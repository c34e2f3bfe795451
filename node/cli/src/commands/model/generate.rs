//! `starling generate`: how a trained language model goes on with a text.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};

use serde_json::json;
use starling::export::{SamplingOptions, TextDecoder};

use super::{CommandError, Context, EXIT_DONE, print};
use crate::cli::GenerateFlags;
use crate::output::format;

/// The longest prompt, in bytes.
const MAX_PROMPT: u64 = 16 << 20;

pub(in super::super) fn generate(context: &Context, flags: &GenerateFlags) -> Result<u8, CommandError> {
    let device = context.load(&flags.values())?.device()?;
    let model = flags.model.place().open(device)?;
    let sampling = SamplingOptions {
        temperature: flags.temperature,
        top_k: flags.top_k.map(usize::from),
        top_p: flags.top_p,
        seed: flags.seed,
    };
    // Whether it can go on with a text at all comes before what text.
    model.generate(&[], sampling)?;
    let prompt = prompt(flags)?;
    let mut generation = model.generate(&prompt, sampling)?;
    let seen = generation.context();
    if generation.prompt() > seen {
        let noun = if model.tokenizer().is_some() { "tokens" } else { "bytes" };
        context.console.line(&format!(
            "warning: the prompt has {} {noun}, of which the model sees the last {seen}",
            format::thousands(generation.prompt() as u64)
        ));
    }
    if flags.no_cache {
        generation = generation.without_cache();
    }
    let mut out = Out::new(context.global.json);
    let mut speech = TextDecoder::new(&flags.stop);
    let (mut tokens, mut is_whole) = (0, false);
    while tokens < flags.tokens && !speech.has_ended() && !is_whole {
        let token = generation.draw()?;
        tokens += 1;
        is_whole = generation.is_end(token);
        let shown: String = generation.spelled(token).into_iter().map(|byte| speech.push(byte)).collect();
        if out.show(&shown)? == Reader::Gone {
            return Ok(EXIT_DONE);
        }
    }
    if out.show(&speech.finish())? == Reader::Gone || (!context.global.json && out.show("\n")? == Reader::Gone) {
        return Ok(EXIT_DONE);
    }
    if context.global.json {
        let origin = &model.description().origin;
        let told = json!({
            "model": model.name(),
            "run": origin.run,
            "step": origin.step,
            "prompt": String::from_utf8_lossy(&prompt),
            "text": out.text,
            "tokens": tokens,
            "ended": match (speech.has_ended(), is_whole) {
                (true, _) => "stop",
                (false, true) => "end",
                (false, false) => "tokens",
            },
            "seed": flags.seed,
        });
        print(true, || told, String::new)?;
    }
    Ok(EXIT_DONE)
}

/// What the model goes on with.
fn prompt(flags: &GenerateFlags) -> Result<Vec<u8>, CommandError> {
    if let Some(prompt) = &flags.prompt {
        return Ok(prompt.clone().into_bytes());
    }
    if io::stdin().is_terminal() {
        return Err(CommandError::NoPrompt);
    }
    let mut prompt = Vec::new();
    let read = io::stdin().lock().take(MAX_PROMPT + 1).read_to_end(&mut prompt);
    let failed = CommandError::io("read the prompt from the standard input");
    match read {
        Ok(_) if prompt.len() as u64 > MAX_PROMPT => {
            Err(failed(io::Error::other(format!("it has more than {MAX_PROMPT} bytes; of a prompt, the end counts"))))
        }
        Ok(_) => Ok(prompt),
        Err(error) => Err(failed(error)),
    }
}

/// Whether somebody still reads what is written.
#[derive(PartialEq)]
enum Reader {
    There,
    Gone,
}

/// The standard output, as text comes.
struct Out {
    /// All of it, of what is shown at the end.
    text: String,
    is_kept: bool,
    is_terminal: bool,
}

impl Out {
    fn new(is_kept: bool) -> Self {
        Self { text: String::new(), is_kept, is_terminal: io::stdout().is_terminal() }
    }

    fn show(&mut self, text: &str) -> Result<Reader, CommandError> {
        if self.is_kept {
            self.text.push_str(text);
            return Ok(Reader::There);
        }
        // A model says what it was taught, be it to move a terminal's cursor.
        let shown = match self.is_terminal {
            true => text.split_inclusive(['\n', '\t']).map(visible).collect(),
            false => text.to_owned(),
        };
        let mut stdout = io::stdout().lock();
        match stdout.write_all(shown.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(Reader::There),
            // Who reads has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => Err(CommandError::io("write to stdout")(error)),
        }
    }
}

/// The text, which ends with a line or a tab or has neither, as a terminal takes it.
fn visible(text: &str) -> String {
    match text.strip_suffix(['\n', '\t']) {
        Some(before) => format::visible(before) + &text[before.len()..],
        None => format::visible(text),
    }
}
