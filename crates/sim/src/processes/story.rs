//! Stories: scripts of whole processes, with the expected trace of each step.
//!
//! A story is a text. Lines that begin with `#` are prose. A *block* is a list of directives,
//! followed by a line `----` and the trace that the directives caused, up to an empty line. [`tell`]
//! plays the directives and returns the text with the traces that it saw. A story holds if both
//! texts are equal.
//!
//! `script` reads the directives, `stage` carries them out, and `telling` records the trace. The
//! trace is read from the state machines after each step: words of the member's own row, its
//! engine, and the calls of its driver. All checks of the simulator are active. After the last
//! block the faults end, the applications send at random, and the run continues, untraced, until
//! the checkers find the group at rest.
mod script;
mod stage;
mod telling;

pub(super) use telling::Telling;

use super::world::Broken;
use script::Directive;
use stage::StoryStage;

/// The line between the directives and the trace.
const RULE: &str = "----";

/// Plays a story, and returns its text with the traces of this run.
///
/// # Errors
///
/// A line that is no directive, an `expect` that does not hold, or a violation of an invariant. The
/// error names the line, and has the trace of its block so far.
pub fn tell(text: &str) -> Result<String, String> {
    tell_with(Broken::Not, text)
}

/// Plays a story with drivers that break their duties in this way.
fn tell_with(broken: Broken, text: &str) -> Result<String, String> {
    let directives = directives(text)?;
    let stated = script::scene(directives.iter().map(|(_, directive)| directive))?;
    let mut stage = StoryStage::new(&stated, broken);
    let mut directives = directives.into_iter().peekable();
    let (mut told, mut is_open, mut is_trace) = (String::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        if line == RULE {
            is_trace = true;
        }
        if line.is_empty() {
            is_trace = false;
            end_block(&mut stage, &mut is_open, &mut told);
        }
        if !is_trace {
            told += line;
            told.push('\n');
        }
        if let Some((_, directive)) = directives.next_if(|(of, _)| *of == number) {
            is_open = true;
            if let Err(why) = stage.play(&directive) {
                return Err(format!("line {}: `{line}`: {why}; the trace so far:\n{}", number + 1, stage.take_trace()));
            }
        }
    }
    end_block(&mut stage, &mut is_open, &mut told);
    stage.end()?;
    Ok(told)
}

/// Adds the trace of a block, if one ends here and has any.
fn end_block(stage: &mut StoryStage<'_>, is_open: &mut bool, told: &mut String) {
    if std::mem::take(is_open) {
        let trace = stage.take_trace();
        if !trace.is_empty() {
            *told += &format!("{RULE}\n{trace}");
        }
    }
}

/// Returns the directives of a story, with the indexes of their lines.
fn directives(text: &str) -> Result<Vec<(usize, Directive)>, String> {
    let (mut found, mut is_trace) = (vec![], false);
    for (number, line) in text.lines().enumerate() {
        is_trace = !line.is_empty() && (is_trace || line == RULE);
        if !is_trace && !line.is_empty() && !line.starts_with('#') {
            let directive = Directive::parse(line).map_err(|why| format!("line {}: `{line}`: {why}", number + 1))?;
            found.push((number, directive));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: &str = "# Two.\n\nprocesses a b\nbootstrap\n\nsend a 1\nrun 100ms\nexpect delivered a b: a1\n";

    #[test]
    fn a_story_that_was_told_is_told_the_same_way_again() {
        let told = tell(SHORT).unwrap();
        assert!(told.contains("a b: begins view 1: a b") && told.contains("a b: delivers a1"), "{told}");
        assert_eq!(tell(&told).unwrap(), told);
    }

    #[test]
    fn prose_between_the_directives_of_a_block_stays() {
        let told = tell(&SHORT.replace("\nrun", "\n# It arrives.\nrun")).unwrap();
        assert!(told.contains("send a 1\n# It arrives.\nrun 100ms\nexpect delivered a b: a1\n----\n"), "{told}");
        assert_eq!(tell(&told).unwrap(), told);
    }

    #[test]
    fn a_driver_that_swaps_deliveries_fails_a_story() {
        let text = SHORT.replace("send a 1", "send a 9\nsend b 9").replace("expect delivered a b: a1\n", "");
        assert!(tell(&text).is_ok());
        let error = tell_with(Broken::OrderSwapped, &text).unwrap_err();
        assert!(error.contains("total order") || error.contains("FIFO"), "{error}");
    }

    #[test]
    fn an_expectation_that_does_not_hold_and_an_unknown_directive_are_named() {
        let error = tell(&SHORT.replace("a b: a1", "a b: a1 b1")).unwrap_err();
        assert!(error.starts_with("line 8: ") && error.contains("a has delivered a1"), "{error}");
        let error = tell("processes a b\nfund\n").unwrap_err();
        assert!(error.starts_with("line 2: `fund`"), "{error}");
    }
}
