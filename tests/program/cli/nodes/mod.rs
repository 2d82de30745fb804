//! Real nodes as processes: how they start, what operators see of their lives, how they end.

mod edited;
mod existing_files;
mod far;
mod interrupted;
mod leave_for_good;
mod life;
mod login_required;
mod newcomer;
mod other_past;
mod real;
mod restarted;
mod user_secrets;
mod users;
