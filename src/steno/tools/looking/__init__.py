"""Tools that only look: folders, the text in files, a page of the web, a skill."""
