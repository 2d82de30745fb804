// Loads the page again if one of its files has not come: browsers give up all requests under way when the machine's
// network changes, and a script that imports one that is missing does not run.

const AGAIN_MS = 1000;

// What has not come tells only itself of it, so it must be caught on the way.
addEventListener("error", ({ target }) => {
  if (target instanceof HTMLScriptElement || target instanceof HTMLLinkElement) setTimeout(() => location.reload(), AGAIN_MS);
}, { capture: true });
